"""JsonConverter by columns: a whole Arrow column to the bytes that the converter gives its values one by one.

It takes structs of plain fields, and plain values. For all else it gives None, and the caller goes value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.data.arrow import column_values, schema_of_field
from ottla.connect.data.java_text import quoted
from ottla.connect.data.schema import ConnectValue, Schema, Type

_SPECIAL: Final = r'["\\\x00-\x1f]'
_NUMBERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)

OneValue = Callable[[Schema, ConnectValue], str]
"""The JSON text of one value."""


def json_column(field: pa.Field, column: pa.Array, head: str, tail: str, one: OneValue) -> pa.Array | None:
    """The JSON of each value between two texts, as bytes; None if the column cannot be taken as a whole."""
    if column.null_count:
        return None
    if not pa.types.is_struct(field.type):
        text = _texts(field, column, one)
        return None if text is None else _joined([head, text, tail])
    parts: list[str | pa.Array] = [head + "{"]
    for at in range(field.type.num_fields):
        inner = field.type.field(at)
        text = _texts(inner, column.field(at), one)
        if text is None:
            return None
        parts += [f"{',' if at else ''}{quoted(inner.name)}:", text]
    return _joined([*parts, "}" + tail])


def _joined(parts: list[str | pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "").cast(pa.binary())


def _texts(field: pa.Field, column: pa.Array, one: OneValue) -> pa.Array | None:
    schema = schema_of_field(field)
    if not schema.type.is_primitive or (column.null_count and not schema.optional):
        return None
    text = _plain_texts(schema, column)
    if text is None:
        values = column_values(schema, column)
        text = pa.array([None if value is None else one(schema, value) for value in values], pa.string())
    return pc.fill_null(text, "null")


def _plain_texts(schema: Schema, column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).cast(pa.string())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).cast(pa.string())
    if schema.name is not None:
        return None
    if schema.type in _NUMBERS:
        return column.cast(pa.string())
    if schema.type is Type.BOOLEAN:
        return pc.if_else(column, "true", "false")
    if schema.type is Type.STRING and not pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py():
        return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    return None
