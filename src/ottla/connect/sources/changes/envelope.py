"""Debezium's records of changes: keys, envelopes, tombstones and heartbeats, with its schema names."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.record import Headers, SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.sources.changes import transactions
from ottla.connect.sources.changes.transactions import Order

VERSION: Final = "3.6.3"
CREATE: Final = "c"
READ: Final = "r"
UPDATE: Final = "u"
DELETE: Final = "d"
TRUNCATE: Final = "t"
UNAVAILABLE: Final = "__debezium_unavailable_value"

POINT: Final = schemas.struct(
    [
        ("x", schemas.FLOAT64),
        ("y", schemas.FLOAT64),
        ("wkb", schemas.optional(schemas.BYTES)),
        ("srid", schemas.optional(schemas.INT32)),
    ],
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
)
_SNAPSHOT: Final = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters={
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    },
)
_OPTIONAL_INT64: Final = schemas.optional(schemas.INT64)
_NO_HEADERS: Final = Headers()
_HEARTBEAT_KEY: Final = schemas.struct(
    [("serverName", schemas.STRING)], name="io.debezium.connector.common.ServerNameKey"
)
_HEARTBEAT: Final = schemas.struct([("ts_ms", schemas.INT64)], name="io.debezium.connector.common.Heartbeat")
_EMPTY: Final[Mapping[Type, ConnectValue]] = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), 0),
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.BYTES: b"",
}
_EMPTY_BY_NAME: Final[Mapping[str, ConnectValue]] = {
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
}


Row = list[ConnectValue]
"""The values of a row, in the order of its schema's fields."""


def source_schema(name: str, more: Sequence[tuple[str, Schema]]) -> Schema:
    """The schema of the block `source`: the fields of all databases, then those of one."""
    common = [
        ("version", schemas.STRING),
        ("connector", schemas.STRING),
        ("name", schemas.STRING),
        ("ts_ms", schemas.INT64),
        ("snapshot", _SNAPSHOT),
        ("db", schemas.STRING),
        ("sequence", schemas.OPTIONAL_STRING),
        ("ts_us", _OPTIONAL_INT64),
        ("ts_ns", _OPTIONAL_INT64),
    ]
    return schemas.struct([*common, *more], name=name, version=1)


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the records of one table look like. It changes with the table's columns."""

    topic: str
    row: Schema
    key: Schema | None
    envelope: Schema
    source: Schema
    key_names: tuple[str, ...]
    key_at: tuple[int, ...]
    """The places of the key's columns in a row."""
    required: tuple[int, ...]
    """The places of columns that may not be null."""

    @classmethod
    def of(
        cls, topic: str, columns: Sequence[tuple[str, Schema]], keys: Sequence[str], source: Schema
    ) -> TableShape:
        """The shape of a table with these columns."""
        row = schemas.struct(columns, optional=True, name=f"{topic}.Value")
        by_name = dict(columns)
        key = None
        if keys:
            key = schemas.struct([(one, by_name[one]) for one in keys], name=f"{topic}.Key")
        envelope = schemas.struct(
            [
                ("before", row),
                ("after", row),
                ("source", source),
                ("transaction", transactions.BLOCK),
                ("op", schemas.STRING),
                ("ts_ms", _OPTIONAL_INT64),
                ("ts_us", _OPTIONAL_INT64),
                ("ts_ns", _OPTIONAL_INT64),
            ],
            name=f"{topic}.Envelope",
            version=2,
        )
        return cls(
            topic,
            row,
            key,
            envelope,
            source,
            tuple(keys),
            tuple(row.field(one).index for one in keys),
            tuple(at.index for at in row.fields if not at.schema.optional),
        )

    def key_of(self, row: Row) -> Struct | None:
        """The key of a row."""
        if self.key is None:
            return None
        return Struct.of_values(self.key, [row[at] for at in self.key_at])

    def has_same_key(self, old: Row, new: Row) -> bool:
        """Whether an update left the key as it was."""
        return all(old[at] == new[at] for at in self.key_at)

    def struct_of(self, row: Row) -> Struct:
        """A row as a struct. Columns that the database did not send are empty, as Debezium has them."""
        for index in self.required:
            if row[index] is None:
                row[index] = empty(self.row.fields[index].schema)
        return Struct.of_values(self.row, row)


def empty(schema: Schema) -> ConnectValue:
    """The value of a column that may not be null and was not sent."""
    import datetime
    import decimal

    if schema.name == schemas.DECIMAL:
        scale = int((schema.parameters or {}).get(schemas.SCALE, "0"))
        return decimal.Decimal(0).scaleb(-scale)
    if schema.name == schemas.TIMESTAMP:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    if schema.name == schemas.DATE:
        return datetime.date(1970, 1, 1)
    if schema.name == schemas.TIME:
        return datetime.time()
    if schema.name is not None and schema.name in _EMPTY_BY_NAME:
        return _EMPTY_BY_NAME[schema.name]
    if schema.type is Type.ARRAY:
        return []
    if schema.type is Type.STRUCT:
        made = Struct(schema, {at.name: empty(at.schema) for at in schema.fields if not at.schema.optional})
        if schema.name == "io.debezium.data.VariableScaleDecimal":
            made.put("value", b"\0")
        elif schema.name == "io.debezium.data.geometry.Point":
            made.put("wkb", struct.pack("<BIdd", 1, 1, 0.0, 0.0))
        return made
    return _EMPTY[schema.type]


@dataclass(slots=True)
class Change:
    """One change of one row. `source` has the values of the block of that name, in order."""

    shape: TableShape
    op: str
    before: Row | None
    after: Row | None
    source: list[ConnectValue]
    moved_from: Row | None = None
    """The row's old key, if an update changed it."""
    order: Order | None = None
    """Its place in its transaction, if the records tell it."""


@dataclass(frozen=True, slots=True)
class RecordStyle:
    """What records have beside their envelopes."""

    tombstones: bool
    headers: Headers = _NO_HEADERS
    """Debezium's headers about the connector, which all records have (`extended.headers.enabled`)."""


def context_headers(prefix: str, connector: str) -> Headers:
    """Debezium's headers about the connector and this run of it."""
    given = {
        "connectorLogicalName": prefix,
        "taskId": "0",
        "connectorName": connector,
        "runId": str(uuid.uuid4()),
    }
    headers = _NO_HEADERS
    for name, value in given.items():
        headers = headers.add(f"__debezium.context.{name}", value, schemas.STRING)
    return headers


def records_of_change(change: Change, style: RecordStyle) -> Iterator[SourceRecord]:
    """The records of a change: an update of a key is a deletion and a creation, a deletion has a tombstone."""
    shape = change.shape
    if change.moved_from is not None and change.after is not None:
        old, new = shape.key_of(change.moved_from), shape.key_of(change.after)
        before = change.before if change.before is not None else change.moved_from
        leaving = _with_key(style, "__debezium.newkey", new, shape)
        yield _record(change, DELETE, old, before, None, leaving)
        if style.tombstones:
            yield SourceRecord(shape.topic, None, None, old, shape.key, headers=leaving)
        coming = _with_key(style, "__debezium.oldkey", old, shape)
        yield _record(change, CREATE, new, None, change.after, coming, second=True)
        return
    row = change.after if change.after is not None else change.before
    key = shape.key_of(row) if row is not None else None
    yield _record(change, change.op, key, change.before, change.after, style.headers)
    if change.op == DELETE and style.tombstones and key is not None:
        yield SourceRecord(shape.topic, None, None, key, shape.key, headers=style.headers)


def _with_key(style: RecordStyle, name: str, key: Struct | None, shape: TableShape) -> Headers:
    headers = _NO_HEADERS.add(name, key, shape.key)
    for one in style.headers:
        headers = headers.add(one.key, one.value, one.schema)
    return headers


def _record(
    change: Change,
    op: str,
    key: Struct | None,
    before: Row | None,
    after: Row | None,
    headers: Headers,
    *,
    second: bool = False,
) -> SourceRecord:
    shape = change.shape
    now_ns = time.time_ns()
    # The order of the envelope's fields; types of columns give values that fit their schemas.
    values = [
        None if before is None else shape.struct_of(before),
        None if after is None else shape.struct_of(after),
        Struct.of_values(shape.source, change.source),
        None if change.order is None else change.order.block(second),
        op,
        now_ns // 1_000_000,
        now_ns // 1_000,
        now_ns,
    ]
    return SourceRecord(
        shape.topic,
        Struct.of_values(shape.envelope, values),
        shape.envelope,
        key,
        shape.key if key is not None else None,
        headers=headers,
    )


def heartbeat(prefix: str, topics_prefix: str) -> SourceRecord:
    """The record that shows that a connector lives while its tables are quiet."""
    return SourceRecord(
        f"{topics_prefix}.{prefix}",
        Struct(_HEARTBEAT, {"ts_ms": time.time_ns() // 1_000_000}),
        _HEARTBEAT,
        Struct(_HEARTBEAT_KEY, {"serverName": prefix}),
        _HEARTBEAT_KEY,
    )
