"""JsonConverter: JSON with or without a schema around it, byte for byte as Kafka's."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias

import pyarrow as pa

from ottla.connect.converters.base import Converter, SchemaAndValue
from ottla.connect.converters.json_columns import Envelopes, json_side, json_texts
from ottla.connect.converters.json_encoders import Encode, encoder_of
from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import Side
from ottla.connect.data.java_text import Float32, Ordered, java_keys, to_json
from ottla.connect.data.logical import (
    date_of,
    days_of,
    decimal_from_bytes,
    decimal_to_bytes,
    time_ms_of,
    time_of,
    timestamp_ms_of,
    timestamp_of,
)
from ottla.connect.data.schema import (
    BOUNDS,
    ConnectValue,
    Field,
    Schema,
    SchemaAttributes,
    Struct,
    Type,
    java_class_of,
    schema_type,
)
from ottla.connect.failures import ConfigInvalid, DataError

JsonNode: TypeAlias = ConnectValue
"""A JSON value as this converter reads and writes it: numbers with a point are exact decimals."""

_TYPE_NAMES: Final = {
    "boolean": Type.BOOLEAN,
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bytes": Type.BYTES,
    "string": Type.STRING,
}
_NAMES_OF_TYPES: Final = {kind: name for name, kind in _TYPE_NAMES.items()}
_NODE_TYPES: Final = {bool: "BOOLEAN", str: "STRING", list: "ARRAY", dict: "OBJECT", type(None): "NULL"}
_MOST_CACHED: Final = 1000
_NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)


_LEADING_ZERO: Final = re.compile(r"(?<![\d.eE+])0\d")
_WITHOUT_ZEROS: Final = re.compile(r'("(?:\\.|[^"\\])*")|(?<![\d.eE+])(-?)0+(?=\d)')
"""Kafka's JSON reader allows numbers with zeros in front."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_constant)
_MISSING: Final = object()


def parse_json(data: bytes) -> JsonNode:
    """The first JSON value of some bytes, decimals exact; `_MISSING` where there is none."""
    try:
        text = data.decode().lstrip(" \t\r\n")
        if _LEADING_ZERO.search(text):
            text = _WITHOUT_ZEROS.sub(lambda one: one[1] or one[2], text)
        return _DECODER.raw_decode(text)[0] if text else _MISSING
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
        ) from None


class JsonConverter(Converter):
    """`org.apache.kafka.connect.json.JsonConverter`.

    >>> JsonConverter({"schemas.enable": "false"}).from_connect("t", None, {"id": 1})
    b'{"id":1}'
    """

    def __init__(self, configs: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(configs, is_key=is_key)
        self._with_schemas = self.flag("schemas.enable", True)
        self._replace_null = self.flag("replace.null.with.default", True)
        decimals = self.configs.get("decimal.format", "BASE64").upper()
        if decimals not in ("BASE64", "NUMERIC"):
            raise ConfigInvalid(
                f"Invalid value {self.configs['decimal.format']} for configuration decimal.format: "
                "String must be one of (case insensitive): NUMERIC, BASE64"
            )
        self._numeric = decimals == "NUMERIC"
        self._schema_texts: dict[Schema, str] = {}
        self._encoders: dict[int, tuple[Schema, bytes, Encode, bytes]] = {}
        self._parsed_schemas: dict[str, Schema] = {}
        content = self.configs.get("schema.content")
        self._fixed = self.parse_schema(parse_json(content.encode())) if content else None
        self._envelopes = Envelopes(self.parse_schema)

    # -- to bytes

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if schema is None and value is None:
            return None
        if schema is not None and value is not None:
            head, encode, tail = self._prepared(schema)
            return head + encode(value).encode("utf-8", "replace") + tail
        payload = to_json(self._json(schema, value))
        if not self._with_schemas:
            return payload.encode("utf-8", "replace")
        return f'{{"schema":{self._schema_text(schema)},"payload":{payload}}}'.encode("utf-8", "replace")

    def _prepared(self, schema: Schema) -> tuple[bytes, Encode, bytes]:
        """What stands before a payload, its encoder, and what stands behind it."""
        found = self._encoders.get(id(schema))
        if found is None:
            if len(self._encoders) >= _MOST_CACHED:
                self._encoders.clear()
            head, tail = "", ""
            if self._with_schemas:
                head, tail = f'{{"schema":{self._schema_text(schema)},"payload":', "}"
            encode = encoder_of(schema, self._one)
            # The schema stays with its encoder, so that its id is not given to another one.
            found = self._encoders[id(schema)] = (
                schema,
                head.encode("utf-8", "replace"),
                encode,
                tail.encode(),
            )
        return found[1:]

    def _one(self, schema: Schema, value: ConnectValue) -> str:
        return to_json(self._json(schema, value))

    def side_to_bytes(self, topic: str, side: Side) -> pa.Array:
        """The JSON of all values."""
        if side.schema is None:
            return pa.array([self.from_connect(topic, None, one) for one in side.values()], pa.binary())
        head, tail = "", ""
        if self._with_schemas:
            head, tail = f'{{"schema":{self._schema_text(side.schema)},"payload":', "}"
        return json_texts(side, head, tail, self._one)

    def _schema_text(self, schema: Schema | None) -> str:
        if schema is None:
            return "null"
        text = self._schema_texts.get(schema)
        if text is None:
            if len(self._schema_texts) >= _MOST_CACHED:
                self._schema_texts.clear()
            text = self._schema_texts[schema] = to_json(self.schema_json(schema))
        return text

    def schema_json(self, schema: Schema) -> Ordered:
        """A schema in the form that it has in the envelope."""
        kind = schema.type
        out = Ordered(type=_NAMES_OF_TYPES.get(kind, str(kind).lower()))
        if kind is Type.ARRAY:
            out["items"] = self._inner_json(schema.value_schema)
        elif kind is Type.MAP:
            out["keys"] = self._inner_json(schema.key_schema)
            out["values"] = self._inner_json(schema.value_schema)
        elif kind is Type.STRUCT:
            out["fields"] = [Ordered(self.schema_json(at.schema), field=at.name) for at in schema.fields]
        out["optional"] = schema.optional
        for name in ("name", "version", "doc"):
            if getattr(schema, name) is not None:
                out[name] = getattr(schema, name)
        if schema.parameters is not None:
            out["parameters"] = Ordered(schema.parameters)
        if schema.default is not None:
            out["default"] = self._json(schema, schema.default)
        return out

    def _inner_json(self, schema: Schema | None) -> Ordered | None:
        return None if schema is None else self.schema_json(schema)

    def _json(self, schema: Schema | None, value: ConnectValue) -> JsonNode:
        if value is None:
            return self._null(schema)
        if schema is not None and schema.name in _LOGICAL_TO_JSON:
            return self._logical(schema, value)
        kind = schema.type if schema is not None else schema_type(value)
        if kind is None:
            raise DataError(f"Java {java_class_of(value)} does not have corresponding schema type.")
        if schema is not None and not _has_class(kind, value):
            raise DataError(f"Invalid type for {kind}: {java_class_of(value)}")
        if kind is Type.FLOAT32:
            return Float32(value)
        if kind is Type.FLOAT64:
            return float(value)
        if kind is Type.BYTES:
            return base64.b64encode(value).decode()
        if kind is Type.ARRAY:
            items = schema.value_schema if schema is not None else None
            return [self._json(items, one) for one in value]
        if kind is Type.MAP:
            return self._map(schema, value)
        if kind is Type.STRUCT:
            return self._struct(schema, value)
        return value

    def _null(self, schema: Schema | None) -> JsonNode:
        if schema is None:
            return None
        if schema.default is not None and self._replace_null:
            return self._json(schema, schema.default)
        if schema.optional:
            return None
        raise DataError("Conversion error: null value for field that is required and has no default value")

    def _map(self, schema: Schema | None, value: Mapping[ConnectValue, ConnectValue]) -> JsonNode:
        keys = schema.key_schema if schema is not None else None
        values = schema.value_schema if schema is not None else None
        as_object = (
            keys.type is Type.STRING if keys is not None else all(isinstance(one, str) for one in value)
        )
        if as_object:
            names = java_keys(value) if isinstance(value, dict) else value
            return Ordered({str(self._json(keys, key)): self._json(values, value[key]) for key in names})
        return [[self._json(keys, key), self._json(values, one)] for key, one in value.items()]

    def _struct(self, schema: Schema | None, value: Struct) -> Ordered:
        if schema is None or value.schema != schema:
            raise DataError("Mismatching schema.")
        return Ordered(
            {at.name: self._json(at.schema, value.without_default(at.name)) for at in schema.fields}
        )

    def _logical(self, schema: Schema, value: ConnectValue) -> JsonNode:
        expected, name, convert = _LOGICAL_TO_JSON[schema.name or ""]
        if not isinstance(value, expected) or (
            schema.name == schemas.DATE and isinstance(value, datetime.datetime)
        ):
            kind = name if name == "BigDecimal" else "Date"
            label = "Decimal" if name == "BigDecimal" else name
            raise DataError(f"Invalid type for {label}, expected {kind} but was {java_class_of(value)}")
        if isinstance(value, decimal.Decimal):
            return value if self._numeric else base64.b64encode(decimal_to_bytes(schema, value)).decode()
        assert convert is not None
        return convert(value)

    # -- from bytes

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return None, None
        found = parse_json(data)
        if not self._with_schemas:
            return None, self._value(None, None if found is _MISSING else found)
        if self._fixed is not None:
            return self._fixed, self._value(self._fixed, None if found is _MISSING else found)
        if not isinstance(found, dict) or set(found) != {"schema", "payload"}:
            raise DataError(_NO_ENVELOPE)
        schema = self.parse_schema(found["schema"])
        return schema, self._value(schema, found["payload"])

    def bytes_to_side(self, topic: str, data: pa.Array) -> Side:
        """The values of all bytes, if they have one schema."""
        if not self._with_schemas:
            return json_side(None, data, self._value)
        if self._fixed is not None:
            return json_side(self._fixed, data, self._value)
        return json_side(*self._envelopes.split(data), self._value)

    def parse_schema(self, found: JsonNode) -> Schema | None:
        """The schema of an envelope."""
        if found is None:
            return None
        text = repr(found)
        cached = self._parsed_schemas.get(text)
        if cached is None:
            if len(self._parsed_schemas) >= _MOST_CACHED:
                self._parsed_schemas.clear()
            cached = self._parsed_schemas[text] = self._parse_schema(found)
        return cached

    def _parse_schema(self, found: JsonNode) -> Schema:
        name = found.get("type") if isinstance(found, dict) else None
        if not isinstance(name, str):
            raise DataError("Schema must contain 'type' field")
        if name in _TYPE_NAMES:
            built = Schema(_TYPE_NAMES[name])
        elif name == "array":
            if found.get("items") is None:
                raise DataError("Array schema did not specify the element type")
            built = Schema(Type.ARRAY, value_schema=self.parse_schema(found["items"]))
        elif name == "map":
            for part, what in (("keys", "key"), ("values", "value")):
                if part not in found:
                    raise DataError(f"Map schema did not specify the {what} type")
            keys, values = self.parse_schema(found["keys"]), self.parse_schema(found["values"])
            built = Schema(Type.MAP, key_schema=keys, value_schema=values)
        elif name == "struct":
            built = Schema(Type.STRUCT, fields=tuple(self._parse_fields(found.get("fields"))))
        else:
            raise DataError(f"Unknown schema type: {name}")
        return self._parse_attributes(built, found)

    def _parse_fields(self, fields: JsonNode) -> list[Field]:
        if not isinstance(fields, list):
            raise DataError('Struct schema\'s "fields" argument is not an array.')
        parsed = []
        for number, one in enumerate(fields):
            name = one.get("field") if isinstance(one, dict) else None
            if not isinstance(name, str):
                raise DataError("Struct schema's field name not specified properly")
            schema = self.parse_schema(one)
            assert schema is not None
            parsed.append(Field(name, number, schema))
        return parsed

    def _parse_attributes(self, built: Schema, found: Mapping[str, JsonNode]) -> Schema:
        parameters = found.get("parameters")
        if isinstance(parameters, dict):
            if not all(isinstance(one, str) for one in parameters.values()):
                raise DataError("Schema parameters must have string values.")
        else:
            parameters = None
        version = found.get("version")
        attributes: SchemaAttributes = {
            "optional": found.get("optional") is True,
            "version": version if isinstance(version, int) and not isinstance(version, bool) else None,
            "parameters": parameters or None,
        }
        for name in ("name", "doc"):
            attributes[name] = found[name] if isinstance(found.get(name), str) else None
        built = schemas.changed(built, **attributes)
        if "default" in found:
            default = self._value(built, found["default"])
            built.validate(default, "default value") if default is not None else None
            built = schemas.changed(built, default=default)
        return built

    def _value(self, schema: Schema | None, found: JsonNode) -> ConnectValue:
        if schema is None:
            return self._plain(found)
        if found is None:
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type} field")
        if schema.name in _LOGICAL_FROM_JSON:
            return _LOGICAL_FROM_JSON[schema.name](schema, found)
        return self._typed(schema, found)

    def _plain(self, found: JsonNode) -> ConnectValue:
        if isinstance(found, decimal.Decimal):
            # Java's decimals have no negative zero.
            return float(found) + 0.0
        if isinstance(found, int) and not isinstance(found, bool):
            return _wrapped(found, Type.INT64)
        if isinstance(found, list):
            return [self._plain(one) for one in found]
        if isinstance(found, dict):
            return {key: self._plain(one) for key, one in found.items()}
        return found

    def _typed(self, schema: Schema, found: JsonNode) -> ConnectValue:
        kind = schema.type
        number = isinstance(found, (int, decimal.Decimal)) and not isinstance(found, bool)
        if kind is Type.BOOLEAN:
            return found is True
        if kind in BOUNDS:
            return _wrapped(int(found), kind) if number else 0
        if kind in (Type.FLOAT32, Type.FLOAT64):
            return float(found) + 0.0 if number else 0.0
        if kind is Type.STRING:
            return found if isinstance(found, str) else None
        if kind is Type.BYTES:
            return _from_base64(found, "Invalid bytes field") if isinstance(found, str) else None
        if kind is Type.ARRAY:
            items = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
            return [self._value(schema.value_schema, one) for one in items]
        if kind is Type.MAP:
            return self._typed_map(schema, found)
        if not isinstance(found, dict):
            raise DataError(f"Structs should be encoded as JSON objects, but found {_node_type(found)}")
        built = Struct(schema)
        for at in schema.fields:
            built.put(at.name, self._value(at.schema, found.get(at.name)))
        return built

    def _typed_map(self, schema: Schema, found: JsonNode) -> dict[ConnectValue, ConnectValue]:
        assert schema.key_schema is not None
        if schema.key_schema.type is Type.STRING:
            if not isinstance(found, dict):
                raise DataError(
                    f"Maps with string fields should be encoded as JSON objects, but found {_node_type(found)}"
                )
            return {key: self._value(schema.value_schema, one) for key, one in found.items()}
        if not isinstance(found, list):
            raise DataError(
                "Maps with non-string fields should be encoded as JSON array of tuples, "
                f"but found {_node_type(found)}"
            )
        made = {}
        for entry in found:
            if not isinstance(entry, list):
                raise DataError(f"Found invalid map entry instead of array tuple: {_node_type(entry)}")
            if len(entry) != 2:
                raise DataError(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key = self._value(schema.key_schema, entry[0])
            made[key] = self._value(schema.value_schema, entry[1])
        return made


def _has_class(kind: Type, value: ConnectValue) -> bool:
    found = schema_type(value)
    if kind in BOUNDS:
        return found is Type.INT64 and BOUNDS[kind][0] <= value <= BOUNDS[kind][1]
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return found in (Type.FLOAT64, Type.INT64)
    return found is kind


def _wrapped(number: int, kind: Type) -> int:
    """The number in the bits of its type, as a cast in Java gives it; int8 and int16 pass through 32 bits there."""
    low, high = BOUNDS[kind]
    return number if low <= number <= high else (number - low) % (high - low + 1) + low


def _node_type(found: JsonNode) -> str:
    return _NODE_TYPES.get(type(found), "NUMBER")


def _from_base64(text: str, message: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(message) from None


def _decimal_from(schema: Schema, found: JsonNode) -> decimal.Decimal:
    if isinstance(found, (int, decimal.Decimal)) and not isinstance(found, bool):
        return decimal.Decimal(found)
    if isinstance(found, str):
        return decimal_from_bytes(schema, _from_base64(found, "Invalid bytes for Decimal field"))
    raise DataError(
        "Invalid type for Decimal, underlying representation should be numeric or bytes but was "
        f"{_node_type(found)}"
    )


def _whole(found: JsonNode, kind: Type, label: str, unit: str) -> int:
    low, high = BOUNDS[kind]
    whole = isinstance(found, int) and not isinstance(found, bool)
    if not whole or (unit == "integer" and not low <= found <= high):
        raise DataError(
            f"Invalid type for {label}, underlying representation should be {unit} but was {_node_type(found)}"
        )
    return _wrapped(found, kind)


_LOGICAL_TO_JSON: Final[dict[str | None, tuple[type, str, Callable[[ConnectValue], int] | None]]] = {
    schemas.DECIMAL: (decimal.Decimal, "BigDecimal", None),
    schemas.DATE: (datetime.date, "Date", days_of),
    schemas.TIME: (datetime.time, "Time", time_ms_of),
    schemas.TIMESTAMP: (datetime.datetime, "Timestamp", timestamp_ms_of),
}
_LOGICAL_FROM_JSON: Final[dict[str | None, Callable[[Schema, JsonNode], ConnectValue]]] = {
    schemas.DECIMAL: _decimal_from,
    schemas.DATE: lambda _, found: date_of(_whole(found, Type.INT32, "Date", "integer")),
    schemas.TIME: lambda _, found: time_of(_whole(found, Type.INT32, "Time", "integer")),
    schemas.TIMESTAMP: lambda _, found: timestamp_of(_whole(found, Type.INT64, "Timestamp", "integral")),
}
