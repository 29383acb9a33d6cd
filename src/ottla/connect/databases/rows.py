"""Rows of a driver to Arrow batches, column by column."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ottla.connect.data import schema as schemas
from ottla.connect.data.arrow import arrow_field
from ottla.connect.data.schema import Schema, Type
from ottla.connect.databases.connection import SqlRow, SqlValue
from ottla.connect.databases.dialect import Column, Dialect
from ottla.connect.failures import TaskFailed

_logger = logging.getLogger(__name__)

_DRIVER_VALUES: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64))
_warned: set[tuple[str, str]] = set()


def kept_columns(columns: Sequence[Column], numeric: str) -> list[Column]:
    """The columns whose types Connect has; the others are named once in the log."""
    kept = []
    for one in columns:
        if one.schema is None:
            if (one.name, one.type_name) not in _warned:
                _warned.add((one.name, one.type_name))
                _logger.warning(
                    "column %s of type %s is left out: Connect has no such type", one.name, one.type_name
                )
            continue
        kept.append(Column(one.name, _mapped(one.schema, numeric), one.key, one.generated, one.type_name))
    return kept


def _mapped(schema: Schema, numeric: str) -> Schema:
    """Decimals as the connector maps them."""
    if schema.name != schemas.DECIMAL or numeric == "none":
        return schema
    scale = int((schema.parameters or {}).get(schemas.SCALE, "0"))
    if scale == 0:
        return Schema(Type.INT64, schema.optional)
    return Schema(Type.FLOAT64, schema.optional) if numeric.startswith("best_fit") else schema


def rows_to_batch(
    dialect: Dialect,
    kept: Sequence[Column],
    columns: Sequence[Column],
    rows: Sequence[SqlRow],
    zone: datetime.tzinfo,
    topic: str,
    name: str | None,
) -> pa.RecordBatch:
    """A reader's batch with one struct column, named as the table."""
    if len(rows[0]) != len(columns):
        raise TaskFailed(
            f"the columns of {name or 'the query'} changed while it was read: the connector starts again"
        )
    by_name = dict(zip((one.name for one in columns), zip(*rows, strict=True), strict=True))
    arrays, fields = [], []
    for one in kept:
        assert one.schema is not None
        field = arrow_field(one.name, one.schema)
        arrays.append(_array(dialect, one, by_name[one.name], field, zone))
        fields.append(field)
    metadata = {"connect.name": name} if name else None
    value = pa.StructArray.from_arrays(arrays, fields=fields)
    schema = pa.schema(
        [pa.field("value", value.type, nullable=False, metadata=metadata)], metadata={"topic": topic}
    )
    return pa.RecordBatch.from_arrays([value], schema=schema)


def _array(
    dialect: Dialect, column: Column, values: Sequence[SqlValue], field: pa.Field, zone: datetime.tzinfo
) -> pa.Array:
    schema = column.schema
    assert schema is not None
    try:
        if schema.type in _DRIVER_VALUES and schema.name is None:
            try:
                return pa.array(values, field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                pass
        elif schema.type is Type.STRING and schema.name is None and all(type(one) is str for one in values):
            return pa.array(values, field.type)
        converted = [None if one is None else dialect.value(schema, one, zone) for one in values]
        if schema.type is Type.INT64 and schema.name is None:
            converted = [None if one is None else int(one) for one in converted]
        elif schema.type is Type.FLOAT64:
            converted = [None if one is None else float(one) for one in converted]
        return pa.array(converted, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
        raise TaskFailed(
            f"column {column.name} has a value that its type {schema.type} cannot hold: {error}"
        ) from error
