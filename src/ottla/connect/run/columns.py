"""The Arrow layout between reading and writing, and records to rows and back.

Columns of a reader's batch: `value`, and optionally `topic`, `key`, `partition`, `timestamp` (ms) and `headers`. The
Connect schema of `key` and `value` follows from their Arrow types (`data/arrow.py`). Rows for Kafka have the same
columns with bytes in `key` and `value`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from ottla.connect.data.record import ConnectRecord, SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema

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
    from ottla.connect.data.arrow import column_values, schema_of_field

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
    headers: list[list[dict[str, str | bytes | None]]] = [[]] * len(columns[5])
    if any(columns[5]):
        headers = [[{"key": key, "value": value} for key, value in one] for one in columns[5]]
    arrays = [pa.array(columns[at], ROWS.field(at).type) for at in range(5)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(headers, HEADERS)], schema=ROWS)


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


def size_of(record: ConnectRecord, key: bytes | None, value: bytes | None) -> int:
    """Bytes of a record, about."""
    return len(key or b"") + len(value or b"") + 40
