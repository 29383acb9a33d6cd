"""Protobuf serializers with schema ids: messages of generated classes, with the indexes of the message type."""

from __future__ import annotations

import base64
from typing import Any, Literal

from ottla.schemas import frames
from ottla.schemas.avro_values import long_bytes, read_long
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.serde import Decode, Encode, RegistrySerde

_BUILT_IN = "google/protobuf/"
_MAX_INDEXES = 100


class ProtobufSerde(RegistrySerde):
    """Writes and reads messages of a generated class (`Order` of `order_pb2`).

    Between the schema id and the data stand the indexes of the message type in its file, as Confluent's serializers
    write them. Files that the message's file imports are registered first, each under its own name.
    """

    format = "PROTOBUF"

    def __init__(
        self,
        registry: Registry,
        subject: str | None = None,
        message: Any = None,
        *,
        key: bool = False,
        strategy: Literal["topic", "record", "topic-record"] = "topic",
        ids: Literal["prefix", "header"] = "prefix",
        auto_register: bool = True,
        normalize: bool = False,
        dead_letters: Any = None,
    ) -> None:
        super().__init__(registry, subject, key=key, strategy=strategy, ids=ids, dead_letters=dead_letters)
        if message is None or not hasattr(message, "DESCRIPTOR"):
            raise SchemaError(
                "Protobuf needs a generated message class: registry.protobuf('orders-value', Order)"
            )
        self._message = message
        self._options = (auto_register, normalize)

    def __reduce__(self) -> tuple[Any, ...]:
        named = {"key": self._key, "strategy": self._strategy, "ids": self._ids}
        named |= {"auto_register": self._options[0], "normalize": self._options[1]}
        return _rebuild, ((self.registry, self.subject, self._message), named)

    def record_name(self) -> str:
        """The full name of the message, for subjects by record name."""
        return str(self._message.DESCRIPTOR.full_name)

    def _encoder(self, subject: str) -> tuple[Encode, RegisteredSchema]:
        auto_register, normalize = self._options
        file = self._message.DESCRIPTOR.file
        references = self._references(file)
        submit = self.registry.register if auto_register else self.registry.lookup
        held = submit(subject, _serialized(file), "PROTOBUF", references, normalize=normalize)
        prefix = frames.prefix(held.id) if self._ids == "prefix" else b""
        prefix += index_bytes(_indexes(self._message.DESCRIPTOR))
        kind = self._message

        def encode(value: Any) -> bytes:
            if not isinstance(value, kind):
                raise InvalidData(f"a {kind.__name__} is wanted, not a {type(value).__name__}")
            data: bytes = prefix + value.SerializeToString()
            return data

        return encode, held

    def _references(self, file: Any) -> tuple[Reference, ...]:
        found = []
        for each in file.dependencies:
            if each.name.startswith(_BUILT_IN):
                continue
            submit = self.registry.register if self._options[0] else self.registry.lookup
            held = submit(each.name, _serialized(each), "PROTOBUF", self._references(each))
            version = held.version or self.registry.latest(each.name).version
            found.append(Reference(each.name, each.name, version))
        return tuple(found)

    def _decoder(self, held: RegisteredSchema) -> Decode:
        if held.type != "PROTOBUF":
            raise InvalidData(
                f"the schema {held.id} is {held.type}, and this deserializer reads PROTOBUF", held.id
            )
        from google.protobuf.message import DecodeError

        kind = self._message

        def decode(data: bytes, start: int) -> Any:
            start = skip_indexes(data, start)
            try:
                return kind.FromString(data[start:])
            except DecodeError as error:
                raise ValueError(f"it is not a {kind.__name__}: {error}") from None

        return decode


def index_bytes(indexes: list[int]) -> bytes:
    """The indexes of a message type; the first message of a file, the usual case, is one zero byte."""
    if indexes == [0]:
        return b"\0"
    return b"".join([long_bytes(len(indexes)), *map(long_bytes, indexes)])


def skip_indexes(data: bytes, start: int) -> int:
    """The position after the indexes of a message type."""
    count, start = read_long(data, start)
    if not 0 <= count <= _MAX_INDEXES:
        raise ValueError(f"the record claims {count} indexes of a message type")
    for _ in range(count):
        _, start = read_long(data, start)
    return start


def _indexes(descriptor: Any) -> list[int]:
    found: list[int] = []
    while descriptor.containing_type is not None:
        found.insert(0, list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    return [list(descriptor.file.message_types_by_name.values()).index(descriptor), *found]


def _serialized(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _rebuild(positional: tuple[Any, ...], named: dict[str, Any]) -> ProtobufSerde:
    return ProtobufSerde(*positional, **named)
