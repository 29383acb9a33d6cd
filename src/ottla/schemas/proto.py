"""Protobuf serializers with schema ids: messages of generated classes, with the indexes of the message type."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Unpack

from ottla.schemas.avro_values import long_bytes
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.proto_messages import indexes_of, parse, read_indexes
from ottla.schemas.serde import Options, RegistrySerde
from ottla.schemas.values import Decode, Encode, Value

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.message import Message

_BUILT_IN = "google/protobuf/"


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
        message: type[Message] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(registry, subject, **options)
        if message is None or not hasattr(message, "DESCRIPTOR"):
            raise SchemaError(
                "Protobuf needs a generated message class: registry.protobuf('orders-value', Order)"
            )
        self._message = message

    def _more_options(self) -> dict[str, object]:
        return {"message": self._message}

    def record_name(self) -> str:
        """The full name of the message, for subjects by record name."""
        return str(self._message.DESCRIPTOR.full_name)

    def _encoder(self, subject: str) -> tuple[Encode, RegisteredSchema]:
        file = self._message.DESCRIPTOR.file
        held = self._held(subject, _serialized(file), self._imports(file))
        prefix = self._prefix(held) + index_bytes(indexes_of(self._message.DESCRIPTOR))
        kind = self._message

        def encode(value: Value) -> bytes:
            if not isinstance(value, kind):
                raise InvalidData(f"a {kind.__name__} is wanted, not a {type(value).__name__}")
            data: bytes = prefix + value.SerializeToString()
            return data

        return encode, held

    def _imports(self, file: FileDescriptor) -> tuple[Reference, ...]:
        """The files that a file imports, registered under their own names."""
        found = []
        for each in file.dependencies:
            if each.name.startswith(_BUILT_IN):
                continue
            held = self._held(each.name, _serialized(each), self._imports(each))
            version = held.version or self.registry.latest(each.name).version
            found.append(Reference(each.name, each.name, version))
        return tuple(found)

    def _decoder(self, held: RegisteredSchema) -> Decode:
        self._check_type(held)
        kind = self._message

        def decode(data: bytes, start: int) -> Message:
            _, start = read_indexes(data, start)
            return parse(kind, data[start:])

        return decode


def index_bytes(indexes: list[int]) -> bytes:
    """The indexes of a message type; the first message of a file, the usual case, is one zero byte."""
    if indexes == [0]:
        return b"\0"
    return b"".join([long_bytes(len(indexes)), *map(long_bytes, indexes)])


def _serialized(file: FileDescriptor) -> str:
    return base64.b64encode(file.serialized_pb).decode()
