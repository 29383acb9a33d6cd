"""Records side by side: keys and values as columns, which converters, transforms and writers may take as a whole.

The way record by record is the reference. What cannot give exactly its result for some columns raises NotByColumns,
and the caller takes the records one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from ottla.connect.data.arrow import arrow_type, arrow_value, column_values
from ottla.connect.data.record import SinkRecord, SourceRecord
from ottla.connect.data.schema import LOGICAL_TYPES, ConnectValue, Field, Schema, Struct, Type
from ottla.connect.failures import ConnectError
from ottla.connect.failures import NotByColumns as NotByColumns

Column: TypeAlias = "pa.Array | list[ConnectValue]"
"""Values of one schema: an Arrow array of a type that stands for the schema, or Connect's own values."""


FALLS_BACK: Final = (
    NotByColumns,
    ConnectError,
    ArithmeticError,
    LookupError,
    pa.ArrowException,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What the way by columns may raise: the way record by record then decides, with its own errors."""

_EXACT: Final[dict[Type, type]] = {
    Type.INT8: int,
    Type.INT16: int,
    Type.INT32: int,
    Type.INT64: int,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
}


@dataclass(frozen=True, slots=True)
class Side:
    """All keys, or all values, of some records. They have one schema.

    A struct has a column for each field, and no struct is null. Everything else is one column.
    """

    schema: Schema | None
    columns: tuple[Column, ...]

    @property
    def is_struct(self) -> bool:
        """Whether there is a column for each field."""
        return self.schema is not None and self.schema.type is Type.STRUCT

    @property
    def column(self) -> Column:
        """The only column of what is no struct."""
        if self.is_struct:
            raise NotByColumns
        return self.columns[0]

    def struct(self) -> Schema:
        """The schema of structs."""
        if self.schema is None or not self.is_struct:
            raise NotByColumns
        return self.schema

    def values(self) -> list[ConnectValue]:
        """The values one by one."""
        schema = self.schema
        if schema is None:
            return list(self.columns[0])
        if schema.type is not Type.STRUCT:
            return values_of(schema, self.columns[0])
        fields = [values_of(at.schema, one) for at, one in zip(schema.fields, self.columns, strict=True)]
        return [Struct.of_values(schema, list(row)) for row in zip(*fields, strict=True)]

    def cut(self, start: int, count: int) -> Side:
        """Some of the rows."""
        return Side(self.schema, tuple(cut(one, start, count) for one in self.columns))


def absent(count: int) -> Side:
    """Keys or values that are all null, without a schema."""
    return Side(None, ([None] * count,))


def side_of(schema: Schema | None, values: list[ConnectValue]) -> Side:
    """Values of one schema as columns."""
    if schema is None:
        return Side(None, (values,))
    if schema.type is not Type.STRUCT:
        return Side(schema, (packed(schema, values),))
    rows: list[Sequence[ConnectValue]] = []
    for one in values:
        if type(one) is not Struct or one.schema is not schema:
            raise NotByColumns
        rows.append(one.values())
    if not schema.fields:
        raise NotByColumns
    columns = zip(*rows, strict=True)
    return Side(
        schema, tuple(packed(at.schema, list(one)) for at, one in zip(schema.fields, columns, strict=True))
    )


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of one topic side by side, without headers."""

    topic: str
    key: Side
    value: Side
    partitions: pa.Array
    """As int32; null leaves the choice to the partitioner."""
    times: pa.Array
    """In milliseconds, as int64."""
    fetched: pa.RecordBatch | None = None
    """The rows that a sink's records were made of; None for those of a source."""

    def __len__(self) -> int:
        return len(self.times)

    def cut(self, start: int, count: int) -> RecordColumns:
        """Some of the rows."""
        return replace(
            self,
            key=self.key.cut(start, count),
            value=self.value.cut(start, count),
            partitions=self.partitions.slice(start, count),
            times=self.times.slice(start, count),
            fetched=None if self.fetched is None else self.fetched.slice(start, count),
        )

    def records(self) -> Iterator[SinkRecord]:
        """A sink's records, each as it would be without columns."""
        rows = self.fetched
        assert rows is not None
        topic, key_schema, value_schema = self.topic, self.key.schema, self.value.schema
        original = rows.column("topic")[0].as_py() if len(self) else ""
        columns = zip(
            self.key.values(),
            self.value.values(),
            self.partitions.to_pylist(),
            self.times.to_pylist(),
            *(rows.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value")),
            strict=True,
        )
        for key, value, partition, time_ms, offset, kind, raw_key, raw_value in columns:
            yield SinkRecord(
                topic,
                value,
                value_schema,
                key,
                key_schema,
                partition,
                time_ms,
                offset=offset,
                timestamp_type="LogAppendTime" if kind else "CreateTime",
                original_topic=original,
                original_partition=partition,
                original_key=raw_key,
                original_value=raw_value,
            )

    def source_records(self) -> Iterator[SourceRecord]:
        """A source's records, without their offsets."""
        columns = zip(
            self.key.values(),
            self.value.values(),
            self.partitions.to_pylist(),
            self.times.to_pylist(),
            strict=True,
        )
        for key, value, partition, time_ms in columns:
            yield SourceRecord(self.topic, value, self.value.schema, key, self.key.schema, partition, time_ms)


def packed(schema: Schema, values: list[ConnectValue]) -> Column:
    """The values as an Arrow array, if that holds exactly these; else as they are."""
    exact = _EXACT.get(schema.type)
    if exact is None or schema.name in LOGICAL_TYPES or not set(map(type, values)) <= {exact, type(None)}:
        return values
    try:
        return pa.array(values, arrow_type(schema))
    except (ValueError, OverflowError):
        return values


def values_of(schema: Schema, column: Column) -> list[ConnectValue]:
    """The values of a column one by one."""
    return column if isinstance(column, list) else column_values(schema, column)


def array_of(schema: Schema, column: Column) -> pa.Array:
    """The column as an Arrow array of the schema's own type."""
    kind = arrow_type(schema)
    if isinstance(column, list):
        return pa.array([arrow_value(schema, one) for one in column], kind)
    return column if column.type == kind else column.cast(kind)


def cut(column: Column, start: int, count: int) -> Column:
    """Some values of a column."""
    return column[start : start + count] if isinstance(column, list) else column.slice(start, count)


def has_nulls(column: Column) -> bool:
    """Whether a value of the column is null."""
    if isinstance(column, list):
        return any(one is None for one in column)
    return bool(column.null_count)


def all_null(column: Column) -> bool:
    """Whether all values of the column are null."""
    if isinstance(column, list):
        return all(one is None for one in column)
    return bool(column.null_count == len(column))


def with_default(schema: Schema, column: Column) -> Column:
    """The column with the schema's default in place of nulls, if there is one."""
    default = schema.default
    if default is None or not has_nulls(column):
        return column
    return packed(schema, [default if one is None else one for one in values_of(schema, column)])


def put_into(at: Field, column: Column, *, defaults: bool) -> Column:
    """The column as `Struct.put` takes its values one by one, with defaults in place of nulls or without."""
    if defaults:
        column = with_default(at.schema, column)
    if isinstance(column, list):
        for one in column:
            at.schema.validate(one)
    elif column.null_count and not at.schema.optional:
        raise NotByColumns
    return column


def repeated(schema: Schema, value: ConnectValue, count: int) -> Column:
    """A column with the same value in all rows."""
    one = packed(schema, [value])
    return [value] * count if isinstance(one, list) else pa.repeat(one[0], count)
