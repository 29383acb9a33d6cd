"""Arrow types to Connect schemas and back, and columns to Connect values."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.failures import DataError

_PRIMITIVES: Final = {
    pa.int8(): Type.INT8,
    pa.int16(): Type.INT16,
    pa.int32(): Type.INT32,
    pa.int64(): Type.INT64,
    pa.uint8(): Type.INT16,
    pa.uint16(): Type.INT32,
    pa.uint32(): Type.INT64,
    pa.float32(): Type.FLOAT32,
    pa.float64(): Type.FLOAT64,
    pa.bool_(): Type.BOOLEAN,
    pa.string(): Type.STRING,
    pa.large_string(): Type.STRING,
    pa.binary(): Type.BYTES,
    pa.large_binary(): Type.BYTES,
}
_ARROW_OF: Final = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_LARGEST_PRECISION: Final = 38


def schema_of_field(field: pa.Field) -> Schema:
    """The Connect schema of an Arrow field. Its metadata may have the schema's name (`connect.name`)."""
    found = schema_of_type(field.type)
    name = (field.metadata or {}).get(b"connect.name")
    if name is not None:
        found = schemas.changed(found, name=name.decode())
    return schemas.optional(found) if field.nullable else found


def schema_of_type(kind: pa.DataType) -> Schema:
    """The Connect schema of an Arrow type, not optional."""
    if kind in _PRIMITIVES:
        return Schema(_PRIMITIVES[kind])
    if pa.types.is_decimal(kind):
        return schemas.decimal_schema(kind.scale)
    if pa.types.is_date(kind):
        return schemas.DATE_SCHEMA
    if pa.types.is_time(kind):
        return schemas.TIME_SCHEMA
    if pa.types.is_timestamp(kind):
        return schemas.TIMESTAMP_SCHEMA
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return schemas.array(schema_of_field(kind.value_field))
    if pa.types.is_map(kind):
        return schemas.map_of(schema_of_field(kind.key_field), schema_of_field(kind.item_field))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return schemas.struct([(one.name, schema_of_field(one)) for one in fields])
    raise DataError(f"Connect has no type for Arrow's {kind}")


def arrow_field(name: str, schema: Schema) -> pa.Field:
    """The Arrow field of a Connect schema."""
    return pa.field(name, arrow_type(schema), schema.optional)


def arrow_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a Connect schema."""
    if schema.name == schemas.DECIMAL:
        return pa.decimal128(_LARGEST_PRECISION, int((schema.parameters or {}).get(schemas.SCALE, "0")))
    if schema.name == schemas.DATE:
        return pa.date32()
    if schema.name == schemas.TIME:
        return pa.time32("ms")
    if schema.name == schemas.TIMESTAMP:
        return pa.timestamp("ms", "UTC")
    if schema.type in _ARROW_OF:
        return _ARROW_OF[schema.type]
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return pa.list_(pa.field("item", arrow_type(schema.value_schema), schema.value_schema.optional))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        return pa.map_(arrow_type(schema.key_schema), arrow_type(schema.value_schema))
    return pa.struct([pa.field(at.name, arrow_type(at.schema), at.schema.optional) for at in schema.fields])


def column_values(schema: Schema, column: pa.Array) -> list[ConnectValue]:
    """The values of a column as Connect has them: structs instead of dicts."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", "UTC"), safe=False)
    found = column.to_pylist()
    return found if _is_plain(schema) else [connect_value(schema, one) for one in found]


def _is_plain(schema: Schema) -> bool:
    return schema.type.is_primitive and schema.name != schemas.TIMESTAMP


def connect_value(schema: Schema, value: ConnectValue) -> ConnectValue:
    """A Python value of Arrow as Connect has it."""
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        return Struct(schema, {at.name: connect_value(at.schema, value[at.name]) for at in schema.fields})
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [connect_value(schema.value_schema, one) for one in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        pairs = value.items() if isinstance(value, dict) else value
        return {
            connect_value(schema.key_schema, key): connect_value(schema.value_schema, one)
            for key, one in pairs
        }
    return value


def arrow_value(schema: Schema, value: ConnectValue) -> ConnectValue:
    """A Connect value as pyarrow takes it."""
    if value is None:
        return None
    if isinstance(value, Struct):
        return {at.name: arrow_value(at.schema, value.get(at.name)) for at in value.schema.fields}
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [arrow_value(schema.value_schema, one) for one in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        return [
            (arrow_value(schema.key_schema, key), arrow_value(schema.value_schema, one))
            for key, one in value.items()
        ]
    return value
