"""JsonSchemaConverter: Connect's data as JSON with a JSON Schema in a registry, with Confluent's hints in it.

The hints (`connect.type`, `connect.index`, `connect.parameters`, `connect.version`) keep what JSON Schema cannot say.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.connect.converters.registry_converter import RegistryConverter, connect_value
from ottla.connect.data import schema as data
from ottla.connect.data.logical import (
    date_of,
    days_of,
    decimal_from_bytes,
    decimal_scale,
    time_ms_of,
    time_of,
    timestamp_ms_of,
    timestamp_of,
)
from ottla.connect.data.schema import ConnectValue, Schema, SchemaAttributes, Struct, Type
from ottla.json_types import JsonObject
from ottla.schemas import frames
from ottla.schemas.errors import InvalidData
from ottla.schemas.json_schema_types import JsonType, json_type

_JSON_TYPES: Final = {
    Type.INT8: "integer",
    Type.INT16: "integer",
    Type.INT32: "integer",
    Type.INT64: "integer",
    Type.FLOAT32: "number",
    Type.FLOAT64: "number",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "string",
}
_WITHOUT_HINT: Final = (Type.BOOLEAN, Type.STRING)
_HINTS: Final = {kind.value.lower(): kind for kind in _JSON_TYPES}
_FROM_JSON: Final = {
    "integer": Type.INT64,
    "number": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}


class JsonSchemaConverter(RegistryConverter):
    """`io.confluent.connect.json.JsonSchemaConverter`. `json.fail.invalid.schema` checks each value against its schema.

    Decimals are written as numbers, and read as numbers or in base 64.
    """

    format = "JSON"

    def _writer(self, topic: str, schema: Schema) -> Callable[[ConnectValue], bytes]:
        text = json.dumps(json_schema_of(schema))
        checks = self.flag("json.fail.invalid.schema", False)
        serde = self.registry.json(
            None, text, key=self.is_key, auto_register=self._registers, validate=checks
        )

        def write(value: ConnectValue) -> bytes:
            return serde.serialize(topic, [], to_json(schema, value)) or b""

        return write

    def _reader(self, schema_id: int) -> tuple[Schema, Callable[[bytes], ConnectValue]]:
        held = self.registry.by_id(schema_id)
        serde = self.registry.json("-", key=self.is_key, validate=False)
        serde._check_type(held)
        schema = schema_of(json_type(held.text, serde._texts(held.references)))
        check = serde._validator(held) if self.flag("json.fail.invalid.schema", False) else None

        def read(record: bytes) -> ConnectValue:
            try:
                value = json.loads(record[frames.PREFIX_BYTES :], parse_float=decimal.Decimal)
                if check is not None:
                    check(value)
                return from_json(schema, value)
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                text = f"a record with the schema id {schema_id} cannot be read: {error}"
                raise InvalidData(text, schema_id) from None

        return schema, read


# -- Connect to JSON Schema


def json_schema_of(schema: Schema, index: int | None = None) -> JsonObject:
    """The JSON Schema of a Connect schema."""
    found = _json_type(schema)
    for name, value in (
        ("title", schema.name),
        ("description", schema.doc),
        ("connect.version", schema.version),
        ("connect.parameters", dict(schema.parameters) if schema.parameters else None),
        ("default", None if schema.name == data.DECIMAL else to_json(schema, schema.default)),
    ):
        if value is not None:
            found[name] = value
    if schema.optional:
        found = {"oneOf": [{"type": "null"}, found]}
    return found if index is None else {**found, "connect.index": index}


def _json_type(schema: Schema) -> JsonObject:
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return {"type": "array", "items": json_schema_of(schema.value_schema)}
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        values = json_schema_of(schema.value_schema)
        if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
            return {"type": "object", "connect.type": "map", "additionalProperties": values}
        entry = {"key": json_schema_of(schema.key_schema, 0), "value": {**values, "connect.index": 1}}
        return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": entry}}
    if schema.type is Type.STRUCT:
        properties = {one.name: json_schema_of(one.schema, one.index) for one in schema.fields}
        return {"type": "object", "properties": properties}
    if schema.name == data.DECIMAL:
        return {"type": "number", "connect.type": "bytes"}
    found: JsonObject = {"type": _JSON_TYPES[schema.type]}
    if schema.type not in _WITHOUT_HINT:
        found["connect.type"] = schema.type.value.lower()
    return found


def to_json(schema: Schema, value: ConnectValue) -> ConnectValue:
    """A Connect value as a JSON document."""
    if value is None:
        return None
    if isinstance(value, Struct):
        return {one.name: to_json(one.schema, value.get(one.name)) for one in value.schema.fields}
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [to_json(schema.value_schema, each) for each in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        inner = schema.value_schema
        if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
            return {key: to_json(inner, each) for key, each in value.items()}
        keys = schema.key_schema
        return [{"key": to_json(keys, key), "value": to_json(inner, each)} for key, each in value.items()]
    match schema.name:
        case data.DATE:
            return days_of(value)
        case data.TIME:
            return time_ms_of(value)
        case data.TIMESTAMP:
            return timestamp_ms_of(value)
        case data.DECIMAL:
            return msgspec.Raw(str(value).encode())
    return base64.b64encode(value).decode() if schema.type is Type.BYTES else value


# -- JSON Schema to Connect


def schema_of(one: JsonType) -> Schema:
    """The Connect schema of a JSON Schema's type."""
    document = one.document
    parameters = document.get("connect.parameters")
    title, version, doc = (document.get(key) for key in ("title", "connect.version", "description"))
    more: SchemaAttributes = {
        "optional": one.optional,
        "name": title if isinstance(title, str) else None,
        "version": version if isinstance(version, int) else None,
        "doc": doc if isinstance(doc, str) else None,
        "parameters": (
            {str(key): str(value) for key, value in parameters.items()}
            if isinstance(parameters, dict) and parameters
            else None
        ),
    }
    if one.kind == "object":
        return data.struct([(name, schema_of(each)) for name, each in one.fields], **more)
    if one.items is not None:
        items = schema_of(one.items)
        keys = data.STRING if one.keys is None else schema_of(one.keys)
        return data.array(items, **more) if one.kind == "array" else data.map_of(keys, items, **more)
    schema = Schema(_HINTS.get(str(document.get("connect.type")), _FROM_JSON[one.kind]), **more)
    default = document.get("default")
    return schema if default is None else data.changed(schema, default=from_json(schema, default))


def from_json(schema: Schema, value: ConnectValue) -> ConnectValue:
    """A JSON document as a Connect value."""
    return connect_value(schema, value, _scalar)


def _scalar(schema: Schema, value: ConnectValue) -> ConnectValue:
    match schema.name:
        case data.DATE:
            return date_of(int(value))
        case data.TIME:
            return time_of(int(value))
        case data.TIMESTAMP:
            return timestamp_of(int(value))
        case data.DECIMAL:
            if isinstance(value, str):
                return decimal_from_bytes(schema, base64.b64decode(value, validate=True))
            return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-decimal_scale(schema)))
    if schema.type is Type.BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"bytes are written in base 64: {error}") from None
    if schema.type in (Type.FLOAT32, Type.FLOAT64) and not isinstance(value, bool):
        return float(value)
    return int(value) if isinstance(value, decimal.Decimal) and value == int(value) else value
