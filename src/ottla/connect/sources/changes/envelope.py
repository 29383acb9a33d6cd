"""Debezium's records of changes: keys, envelopes, tombstones and heartbeats, with its schema names."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.record import Headers, SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.json_types import Json

VERSION: Final = "3.6.0"
CREATE: Final = "c"
READ: Final = "r"
UPDATE: Final = "u"
DELETE: Final = "d"
TRUNCATE: Final = "t"
UNAVAILABLE: Final = "__debezium_unavailable_value"

_TRANSACTION: Final = schemas.struct(
    [("id", schemas.STRING), ("total_order", schemas.INT64), ("data_collection_order", schemas.INT64)],
    optional=True,
    name="event.block",
    version=1,
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
    return schemas.struct([*common, *more], name=name)


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the records of one table look like. It changes with the table's columns."""

    topic: str
    row: Schema
    key: Schema | None
    envelope: Schema
    source: Schema
    key_names: tuple[str, ...]
    names: tuple[str, ...]
    required: tuple[int, ...]
    """The places of columns that may not be null."""
    source_names: tuple[str, ...]

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
                ("transaction", _TRANSACTION),
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
            tuple(name for name, _ in columns),
            tuple(at.index for at in row.fields if not at.schema.optional),
            tuple(at.name for at in source.fields),
        )

    def key_of(self, row: Mapping[str, ConnectValue]) -> Struct | None:
        """The key of a row."""
        if self.key is None:
            return None
        return Struct.of_values(self.key, [row.get(name) for name in self.key_names])

    def struct_of(self, row: Mapping[str, ConnectValue] | None) -> Struct | None:
        """A row as a struct. Columns that the database did not send are empty, as Debezium has them."""
        if row is None:
            return None
        values = [row.get(name) for name in self.names]
        for index in self.required:
            if values[index] is None:
                values[index] = empty(self.row.fields[index].schema)
        return Struct.of_values(self.row, values)

    def source_of(self, source: Mapping[str, ConnectValue]) -> Struct:
        """The block `source`."""
        return Struct.of_values(self.source, [source.get(name) for name in self.source_names])


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
    if schema.type is Type.ARRAY:
        return []
    if schema.type is Type.STRUCT:
        return Struct(schema, {at.name: empty(at.schema) for at in schema.fields if not at.schema.optional})
    return _EMPTY[schema.type]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row. `source` has the values of the block of that name."""

    shape: TableShape
    op: str
    before: Mapping[str, ConnectValue] | None
    after: Mapping[str, ConnectValue] | None
    source: Mapping[str, ConnectValue]
    moved_from: Mapping[str, ConnectValue] | None = None
    """The row's old key, if an update changed it."""
    partition: Mapping[str, Json] = field(default_factory=dict)


def records_of_change(change: Change, *, tombstones: bool) -> Iterator[SourceRecord]:
    """The records of a change: an update of a key is a deletion and a creation, a deletion has a tombstone."""
    shape = change.shape
    if change.moved_from is not None and change.after is not None:
        old, new = shape.key_of(change.moved_from), shape.key_of(change.after)
        before = change.before if change.before is not None else change.moved_from
        yield _record(change, DELETE, old, before, None, ("__debezium.newkey", new))
        if tombstones:
            yield SourceRecord(shape.topic, None, None, old, shape.key)
        yield _record(change, CREATE, new, None, change.after, ("__debezium.oldkey", old))
        return
    key = shape.key_of(change.after or change.before or {}) if change.op != TRUNCATE else None
    yield _record(change, change.op, key, change.before, change.after, None)
    if change.op == DELETE and tombstones and key is not None:
        yield SourceRecord(shape.topic, None, None, key, shape.key)


def _record(
    change: Change,
    op: str,
    key: Struct | None,
    before: Mapping[str, ConnectValue] | None,
    after: Mapping[str, ConnectValue] | None,
    header: tuple[str, Struct | None] | None,
) -> SourceRecord:
    shape = change.shape
    now_ns = time.time_ns()
    # The order of the envelope's fields; types of columns give values that fit their schemas.
    values = [
        shape.struct_of(before),
        shape.struct_of(after),
        shape.source_of(change.source),
        None,
        op,
        now_ns // 1_000_000,
        now_ns // 1_000,
        now_ns,
    ]
    value = Struct.of_values(shape.envelope, values)
    headers = _NO_HEADERS
    if header is not None and shape.key is not None:
        headers = headers.add(header[0], header[1], shape.key)
    return SourceRecord(
        shape.topic, value, shape.envelope, key, shape.key if key is not None else None, headers=headers
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
