"""AvroConverter: Connect's data as Avro records with schema ids, by a schema registry.

Names and logical types follow Confluent's converter, so that connectors here and there share topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.connect.converters.registry_converter import (
    RegistryConverter,
    TypeBudget,
    connect_value,
    plain_value,
)
from ottla.connect.data import schema as data
from ottla.connect.data.schema import ConnectValue, Schema, SchemaAttributes, Type
from ottla.connect.failures import DataError
from ottla.json_types import JsonList, JsonObject
from ottla.registry.avro_types import AvroType
from ottla.schemas.avro_encode import field_default
from ottla.schemas.avro_unions import connect_members, types_of

AvroSchema: TypeAlias = str | JsonList | JsonObject
"""An Avro schema as JSON: the name of a type, a union, or an object."""

_PLAIN: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_FROM_AVRO: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "enum": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
}
_LOGICAL: Final = {
    data.DATE: {"type": "int", "logicalType": "date"},
    data.TIME: {"type": "int", "logicalType": "time-millis"},
    data.TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}
UNION: Final = "io.confluent.connect.avro.Union"
"""The name of a struct that stands for a union of several types."""
_PRECISION: Final = 64
_DEFAULT_NAME: Final = "ConnectDefault"


class AvroConverter(RegistryConverter):
    """`io.confluent.connect.avro.AvroConverter`: see `RegistryConverter` for its settings."""

    format = "Avro"

    def _writer(self, topic: str, schema: Schema) -> Callable[[ConnectValue], bytes]:
        text = json.dumps(avro_of(schema, set()))
        serde = self.registry.avro(
            None, text, key=self.is_key, auto_register=self._registers, unions=connect_members
        )

        def write(value: ConnectValue) -> bytes:
            return serde.serialize(topic, [], plain_value(value)) or b""

        return write

    def _reader(self, schema_id: int) -> tuple[Schema, Callable[[bytes], ConnectValue]]:
        serde = self.registry.avro(key=self.is_key, unions=connect_members)
        held = self.registry.by_id(schema_id)
        schema = schema_of(serde._parse(held.text, held.references).root)
        return schema, lambda data: connect_value(schema, serde.deserialize("", [], data))


def avro_of(schema: Schema, seen: set[str]) -> AvroSchema:
    """The Avro schema of a Connect schema."""
    if schema.name == UNION:
        kinds: JsonList = [_avro_type(one.schema, seen) for one in schema.fields]
        return ["null", *kinds] if schema.optional else kinds
    kind = _avro_type(schema, seen)
    return ["null", kind] if schema.optional else kind


def _avro_type(schema: Schema, seen: set[str]) -> AvroSchema:
    if schema.name in _LOGICAL:
        return {**_LOGICAL[schema.name], "connect.name": schema.name, "connect.version": 1}
    if schema.name == data.DECIMAL:
        scale = int((schema.parameters or {}).get(data.SCALE, 0))
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": _PRECISION,
            "scale": scale,
            "connect.name": schema.name,
            "connect.version": 1,
            "connect.parameters": {data.SCALE: str(scale)},
        }
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return {"type": "array", "items": avro_of(schema.value_schema, seen)}
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        if schema.key_schema.type is not Type.STRING:
            raise DataError("AvroConverter writes maps with text keys only")
        return {"type": "map", "values": avro_of(schema.value_schema, seen)}
    if schema.type is Type.STRUCT:
        return _record(schema, seen)
    plain = _PLAIN[schema.type]
    if schema.type in (Type.INT8, Type.INT16):
        return {"type": plain, "connect.type": schema.type.value.lower()}
    return plain


def _record(schema: Schema, seen: set[str]) -> AvroSchema:
    name = schema.name or _DEFAULT_NAME
    while schema.name is None and name in seen:
        name += "_"
    if name in seen:
        return name
    seen.add(name)
    fields = []
    for one in schema.fields:
        kind = avro_of(one.schema, seen)
        field: JsonObject = {"name": one.name, "type": kind}
        if one.schema.optional and one.schema.default is None:
            field["default"] = None
        elif isinstance(one.schema.default, bool | int | float | str):
            if isinstance(kind, list):
                field["type"] = kind[::-1]
            field["default"] = one.schema.default
        fields.append(field)
    space, _, plain = name.rpartition(".")
    out: JsonObject = {"type": "record", "name": plain, "fields": fields}
    return {**out, "namespace": space} if space else out


def schema_of(one: AvroType) -> Schema:
    """The Connect schema of an Avro type."""
    return _Schemas().of(one)


class _Schemas:
    def __init__(self) -> None:
        self._budget = TypeBudget("AvroConverter")

    def of(
        self,
        one: AvroType,
        *,
        optional: bool = False,
        default: ConnectValue = None,
        above: tuple[AvroType, ...] = (),
    ) -> Schema:
        """The schema of a type inside those `above` it."""
        self._budget.take(f"the record {one.name}", above, contains_itself=one in above)
        path = (*above, one)
        more: SchemaAttributes = {"optional": optional, "default": default}
        if one.kind == "union":
            others = types_of(one)
            if not others:
                raise DataError("AvroConverter has no Connect type for a union of null alone")
            if len(others) == 1:
                return self.of(others[0], optional=True, default=default, above=path)
            names = [name for name in connect_members(one) or () if name is not None]
            members = [
                (name, self.of(each, optional=True, above=path))
                for name, each in zip(names, others, strict=True)
            ]
            return data.struct(members, name=UNION, optional=len(others) < len(one.branches))
        logical = one.props.get("logicalType")
        for name, known in _LOGICAL.items():
            if one.kind == known["type"] and logical == known["logicalType"]:
                return Schema(_FROM_AVRO[one.kind], **(more | {"name": name, "version": 1}))
        if logical == "decimal" and one.kind in ("bytes", "fixed"):
            scale = {data.SCALE: str(one.props.get("scale", 0))}
            return Schema(Type.BYTES, **(more | {"name": data.DECIMAL, "version": 1, "parameters": scale}))
        if one.kind == "array":
            assert one.items is not None
            return data.array(self.of(one.items, above=path), **more)
        if one.kind == "map":
            assert one.items is not None
            return data.map_of(data.STRING, self.of(one.items, above=path), **more)
        if one.kind in ("record", "error"):
            fields = []
            for each in one.fields:
                inner = self.of(each.type, above=path)
                given = field_default(each) if each.has_default else None
                if isinstance(given, bool | int | float | str):
                    inner = self.of(each.type, default=given, above=path)
                fields.append((each.name, inner))
            return data.struct(fields, **(more | {"name": one.name}))
        narrow = one.props.get("connect.type")
        if one.kind == "int" and narrow in ("int8", "int16"):
            return Schema(Type.INT8 if narrow == "int8" else Type.INT16, **more)
        if one.kind not in _FROM_AVRO:
            raise DataError(f"AvroConverter has no Connect type for the Avro type {one.kind}")
        return Schema(_FROM_AVRO[one.kind], **more)
