"""The Arrow layout between reading and writing, and records to rows and back.

Columns of a reader's batch: `value`, and optionally `topic`, `key`, `partition`, `timestamp` (ms) and `headers`. The
Connect schema of `key` and `value` follows from their Arrow types (`data/arrow.py`). Rows for Kafka have the same
columns with bytes in `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.data.arrow import column_values, schema_of_field
from ottla.connect.data.columns import NotByColumns, RecordColumns, Side, absent, side_of
from ottla.connect.data.record import ConnectRecord, SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)
"""Rows for Kafka, as `pipeline.tasks.write_rows` takes them."""

_FEWEST: Final = 16
"""Records that are worth being put side by side."""
_NESTED: Final = frozenset((Struct, dict, list, tuple))
_NESTED_BYTES: Final = 1 << 12

Row = tuple[str, int | None, bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]


def line_batch(topic: str, lines: Sequence[bytes]) -> pa.RecordBatch:
    """Lines of text as a reader's batch; bytes that are no UTF-8 are replaced, as Java does."""
    try:
        values = pa.array(lines, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        values = pa.array([one.decode("utf-8", "replace") for one in lines], pa.string())
    # A column that is not nullable has a schema that is not optional.
    schema = pa.schema([pa.field("value", pa.string(), nullable=False)], metadata={"topic": topic})
    return pa.RecordBatch.from_arrays([values], schema=schema)


def topic_of(batch: pa.RecordBatch) -> str | None:
    """The topic of all rows, from the batch's metadata."""
    found = (batch.schema.metadata or {}).get(b"topic")
    return found.decode() if found is not None else None


def records_of(batch: pa.RecordBatch) -> Iterator[SourceRecord]:
    """The records of a reader's batch."""
    names = batch.schema.names
    count = batch.num_rows

    def plain(name: str) -> list[ConnectValue]:
        return batch.column(name).to_pylist() if name in names else [None] * count

    def typed(name: str) -> tuple[Schema | None, list[ConnectValue]]:
        if name not in names:
            return None, [None] * count
        schema = schema_of_field(batch.schema.field(name))
        return schema, column_values(schema, batch.column(name))

    key_schema, keys = typed("key")
    value_schema, values = typed("value")
    fixed = topic_of(batch)
    topics = plain("topic") if "topic" in names else [fixed] * count
    times, partitions = plain("timestamp"), plain("partition")
    for row in range(count):
        yield SourceRecord(
            topics[row] or fixed or "",
            values[row],
            value_schema,
            keys[row],
            key_schema,
            partitions[row],
            times[row],
        )


def rows_batch(rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows for Kafka as one Arrow batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(ROWS)
    arrays = [pa.array(columns[at], ROWS.field(at).type) for at in range(5)]
    if any(columns[5]):
        given = [[{"key": key, "value": value} for key, value in one] for one in columns[5]]
        headers = pa.array(given, HEADERS)
    else:
        headers = _no_headers(len(columns[5]))
    return pa.RecordBatch.from_arrays([*arrays, headers], schema=ROWS)


def _no_headers(count: int) -> pa.Array:
    none = np.zeros(count + 1, np.int32)
    return pa.ListArray.from_arrays(pa.array(none), pa.array([], HEADERS.value_type), type=HEADERS)


def as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with all columns of `ROWS`, in their order."""
    count = batch.num_rows
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(count, field.type)
        for field in ROWS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows for Kafka together."""
    return batches[0] if len(batches) == 1 else pa.concat_batches([as_rows(one) for one in batches])


def about(record: ConnectRecord) -> int:
    """Bytes of a record, about."""
    value = record.value
    size = 40
    for one in value.values() if type(value) is Struct else (value,):
        kind = type(one)
        if kind is str or kind is bytes:
            size += len(one)
        elif kind in _NESTED:
            size += _NESTED_BYTES
    return size


def runs_of(records: Sequence[SourceRecord]) -> Iterator[Sequence[SourceRecord]]:
    """The records in their order, in runs of one topic and the same schemas."""
    start = 0
    for at in range(1, len(records) + 1):
        if at < len(records):
            one, before = records[at], records[at - 1]
            if (
                one.topic == before.topic
                and one.value_schema is before.value_schema
                and one.key_schema is before.key_schema
            ):
                continue
        if at > start:
            yield records[start:at]
        start = at


def columns_of(records: Sequence[SourceRecord]) -> RecordColumns:
    """Records of one topic and of the same schemas side by side; NotByColumns if there are few, or headers."""
    if len(records) < _FEWEST or any(one.headers.entries for one in records):
        raise NotByColumns
    first = records[0]
    return RecordColumns(
        first.topic,
        side_of(first.key_schema, [one.key for one in records]),
        side_of(first.value_schema, [one.value for one in records]),
        pa.array([one.partition for one in records], pa.int32()),
        pa.array([one.timestamp for one in records], pa.int64()),
    )


def by_topic(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of each topic, which the metadata of the part names; the whole batch if it has no column for topics."""
    if "topic" not in batch.schema.names:
        yield batch
        return
    topics = pc.fill_null(batch.column("topic"), topic_of(batch) or "")
    rest = batch.drop_columns(["topic"])
    found = topics.unique().to_pylist()
    for one in found:
        rows = rest if len(found) == 1 else rest.filter(pc.equal(topics, one))
        yield rows.replace_schema_metadata({"topic": one})


def columns_of_batch(batch: pa.RecordBatch) -> RecordColumns:
    """A reader's batch of one topic as records side by side."""
    names, count = batch.schema.names, batch.num_rows
    if not count:
        raise NotByColumns

    def numbers(name: str, kind: pa.DataType) -> pa.Array:
        return batch.column(name).cast(kind) if name in names else pa.nulls(count, kind)

    def side(name: str) -> Side:
        if name not in names:
            return absent(count)
        schema, column = schema_of_field(batch.schema.field(name)), batch.column(name)
        if schema.type is not Type.STRUCT:
            return Side(schema, (column,))
        if column.null_count or not schema.fields:
            raise NotByColumns
        return Side(schema, tuple(column.field(at.index) for at in schema.fields))

    partitions, times = numbers("partition", pa.int32()), numbers("timestamp", pa.int64())
    return RecordColumns(topic_of(batch) or "", side("key"), side("value"), partitions, times)


def columns_batch(columns: RecordColumns, key: pa.Array, value: pa.Array) -> pa.RecordBatch:
    """Rows for Kafka of converted columns."""
    topics = pa.repeat(pa.scalar(columns.topic, pa.string()), len(columns))
    arrays = [topics, columns.partitions, key, value, columns.times, _no_headers(len(columns))]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
