"""Records of JSON text that people write, by the schemas of a registry: the other direction of `show`."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ottla.registry.avro_types import AvroType
from ottla.schemas import frames
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.avro_unions import Branch
from ottla.schemas.avro_values import explain
from ottla.schemas.client import RegisteredSchema, Registry, schema_of_file
from ottla.schemas.errors import InvalidData, UnknownSchema
from ottla.schemas.proto import index_bytes
from ottla.schemas.proto_messages import MessageTypes, indexes_of
from ottla.schemas.rules import check_rules

if TYPE_CHECKING:
    from ottla.schemas.values import Value

Write = Callable[["Value"], bytes]


class JsonLines:
    """Writes the keys or values of a topic.

    The schema is that of a file, which is registered, else the newest of the topic's subject.
    """

    def __init__(
        self, registry: Registry, topic: str, file: Path | None = None, *, key: bool = False
    ) -> None:
        self._registry = registry
        self.subject = f"{topic}-{'key' if key else 'value'}"
        held = registry.latest(self.subject) if file is None else self._registered(file)
        check_rules(held, "WRITE")
        self._write = self._writer(held)

    def _registered(self, file: Path) -> RegisteredSchema:
        text, kind = schema_of_file(file)
        return self._registry.register(self.subject, text, kind)

    def _writer(self, held: RegisteredSchema) -> Write:
        prefix = frames.prefix(held.id)
        if held.type == "JSON":
            serde = self._registry.json(self.subject, auto_register=False)
            check = serde._validator(held)

            def document(value: Value) -> bytes:
                check(value)
                return prefix + msgspec.json.encode(value)

            return document
        if held.type == "PROTOBUF":
            return self._message(held, prefix)
        root = self._registry.avro(self.subject)._parse(held.text, held.references).root
        encode = compile_encoder(root, prefix=prefix)
        return lambda value: encode(from_json(root, value))

    def _message(self, held: RegisteredSchema, prefix: bytes) -> Write:
        from google.protobuf import json_format

        kind = MessageTypes(self._registry, held).named(None)
        prefix += index_bytes(indexes_of(kind.DESCRIPTOR))

        def write(value: Value) -> bytes:
            try:
                data: bytes = json_format.ParseDict(value, kind()).SerializeToString()
            except (json_format.ParseError, TypeError, AttributeError) as error:
                raise InvalidData(f"it is no {kind.DESCRIPTOR.name}: {error}") from None
            return prefix + data

        return write

    def write(self, text: bytes) -> bytes:
        """The record of a JSON text. InvalidData for one that does not fit the schema."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidData(f"it is not JSON: {error}") from None
        return self._write(value)


def of_topic(registry: Registry, topic: str) -> JsonLines | None:
    """What writes the keys of a topic, if their subject has a schema."""
    try:
        return JsonLines(registry, topic, key=True)
    except UnknownSchema:
        return None


def from_json(one: AvroType, value: Value) -> object:
    """A value of JSON as the encoder takes it: times and decimals are texts there, and bytes base64."""
    if one.kind == "union":
        return _branch(one, value)
    if one.kind in ("record", "error") and isinstance(value, dict):
        types = {field.name: field.type for field in one.fields}
        for name in value:
            if name not in types:
                raise InvalidData(f"{one.simple_name} has no field {name}; it has {', '.join(types)}")
        return {name: from_json(types[name], each) for name, each in value.items()}
    if one.kind == "array" and isinstance(value, list) and one.items is not None:
        return [from_json(one.items, each) for each in value]
    if one.kind == "map" and isinstance(value, dict) and one.items is not None:
        return {key: from_json(one.items, each) for key, each in value.items()}
    try:
        return _plain(one, value)
    except (ValueError, ArithmeticError, binascii.Error):
        # The encoder says what the type is.
        return value


def _plain(one: AvroType, value: Value) -> object:
    logical = one.props.get("logicalType")
    if one.kind in ("bytes", "fixed"):
        if logical == "decimal" and isinstance(value, str | int | float) and not isinstance(value, bool):
            return decimal.Decimal(str(value))
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    if not isinstance(value, str) or one.kind not in ("int", "long") or not isinstance(logical, str):
        return value
    if logical == "date":
        return dt.date.fromisoformat(value)
    if logical.startswith("time-"):
        return dt.time.fromisoformat(value)
    return dt.datetime.fromisoformat(value) if "timestamp-" in logical else value


def _branch(one: AvroType, value: Value) -> object:
    """A value of a union: the value itself, or in Avro's own form as {"type": value}."""
    plain_null = len(one.branches) == 2 and any(branch.kind == "null" for branch in one.branches)
    tagged: list[tuple[int, Value]] = []
    if isinstance(value, dict) and len(value) == 1:
        name, inner = next(iter(value.items()))
        tagged = [(at, inner) for at, each in enumerate(one.branches) if name in (each.kind, each.name)]
    for at, each in [*((at, value) for at in range(len(one.branches))), *tagged]:
        branch = one.branches[at]
        try:
            found = from_json(branch, each)
        except InvalidData:
            continue
        if explain(branch, found) is None:
            return found if plain_null else Branch(at, found)
    return value
