"""What the sinks of Delta and Iceberg tables have in common: rows as Arrow, appended in one commit with their offsets.

A commit of such a table holds the next offset of each partition that it read. A record below that offset is in the
table already, so a cycle that is repeated after a crash appends only what is missing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ottla.connect.data.arrow import arrow_field, arrow_value
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import Schema, Struct, Type
from ottla.connect.failures import DataError
from ottla.connect.spi import Place, Refuse, SinkCycle, SinkWriter, Written

TOPIC: Final = "${topic}"
_NOT_FITTING: Final = (DataError, ValueError, TypeError, OverflowError)
"""What Arrow raises for values that do not fit their type is among them."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table says: the next offsets that its commits hold, and its columns, if it is there."""

    offsets: Mapping[Place, int] = field(default_factory=dict)
    columns: pa.Schema | None = None


@dataclass(slots=True)
class _Rows:
    """The rows of one table in a cycle, by the schema of their values."""

    state: TableState
    by_schema: dict[Schema, list[SinkRecord]] = field(default_factory=dict)


class LakeWriter(SinkWriter):
    """Appends to tables. Not for several tasks at once: a table has one commit per cycle."""

    idempotent = True  # the tables tell what was written

    def __init__(self, connector: str, *, routed: bool) -> None:
        self._connector = connector
        self._routed = routed
        """Whether transforms may send records of one partition to several tables."""
        self._ready: dict[str, pa.Table] = {}

    @abstractmethod
    def tables_of(self, record: SinkRecord) -> Sequence[str]:
        """The tables that a record goes to."""

    @abstractmethod
    def table_of_topic(self, topic: str) -> str | None:
        """The one table that all records of a topic go to; None if the records themselves decide."""

    @abstractmethod
    def state(self, table: str, lineage: int, places: Iterable[Place]) -> TableState:
        """The table as it is now."""

    @abstractmethod
    def append(self, table: str, rows: pa.Table, cycle: SinkCycle) -> None:
        """Appends rows and notes the next offsets, in one commit. A table that changed meanwhile is Retriable."""

    def as_stored(self, kind: pa.DataType) -> pa.DataType:
        """The type that a column has in such a table."""
        return kind

    def positions(self, places: Iterable[Place], lineage: int) -> Mapping[Place, int]:
        """The offsets that the tables stand for, where a partition goes to one table only."""
        if self._routed:
            return {}
        by_table: dict[str, list[Place]] = {}
        for place in places:
            table = self.table_of_topic(place.topic)
            if table is not None:
                by_table.setdefault(table, []).append(place)
        found: dict[Place, int] = {}
        for table, those in by_table.items():
            found.update(self.state(table, lineage, those).offsets)
        return found

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Makes rows of the records; `commit` appends them."""
        places = [Place(one.topic, one.partition) for one in cycle.ranges]
        tables: dict[str, _Rows] = {}
        for record in records:
            try:
                schema = _struct_of(record)
                names = self.tables_of(record)
            except DataError as error:
                refuse(record, error)
                continue
            for name in names:
                if name not in tables:
                    tables[name] = _Rows(self.state(name, cycle.lineage, places))
                rows = tables[name]
                if record.offset >= rows.state.offsets.get(_place(record), 0):
                    rows.by_schema.setdefault(schema, []).append(record)
        self._ready = {}
        for name, rows in tables.items():
            parts: list[pa.Table] = []
            for schema, those in rows.by_schema.items():
                self._add(parts, schema, those, rows.state.columns, refuse)
            if parts:
                self._ready[name] = pa.concat_tables(parts, promote_options="permissive")
        return sum(one.num_rows for one in self._ready.values())

    def _add(
        self,
        parts: list[pa.Table],
        schema: Schema,
        records: Sequence[SinkRecord],
        there: pa.Schema | None,
        refuse: Refuse,
    ) -> None:
        """Adds the rows of one schema; those that do not fit are found by halving."""
        try:
            made = self._table(schema, records, there)
            pa.unify_schemas([*(one.schema for one in parts), made.schema], promote_options="permissive")
        except _NOT_FITTING as error:
            if len(records) == 1:
                refuse(records[0], DataError(f"record {_text(records[0])} does not fit: {error}"))
                return
            middle = len(records) // 2
            self._add(parts, schema, records[:middle], there, refuse)
            self._add(parts, schema, records[middle:], there, refuse)
            return
        parts.append(made)

    def _table(self, schema: Schema, records: Sequence[SinkRecord], there: pa.Schema | None) -> pa.Table:
        """The records as columns, in the types that the table has already."""
        columns, fields = [], []
        for at in schema.fields:
            made = arrow_field(at.name, at.schema)
            column = pa.array([arrow_value(at.schema, one.value.get(at.name)) for one in records], made.type)
            if there is not None and at.name in there.names:
                kind = there.field(at.name).type
            else:
                kind = self.as_stored(made.type)
            columns.append(self._stored(column, kind))
            # Later records may lack a field, so that every column of a table can be null.
            fields.append(pa.field(at.name, kind))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _stored(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """A column in the type of a table. What is no time there is a number first: Arrow casts no time to text."""
        between = self.as_stored(column.type)
        if between != column.type:
            column = column.cast(between)
        return column.cast(kind) if kind != column.type else column

    def commit(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """One commit for each table."""
        ready, self._ready = self._ready, {}
        for name, rows in ready.items():
            self.append(name, rows, cycle)

    def abort(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Forgets the rows."""
        self._ready = {}


def ends_of(cycle: SinkCycle) -> dict[Place, int]:
    """The next offsets behind a cycle, in the order of places."""
    return {
        Place(one.topic, one.partition): one.end for one in sorted(cycle.ranges, key=lambda one: one.topic)
    }


def _struct_of(record: SinkRecord) -> Schema:
    if record.value is None:
        raise DataError(
            f"record {_text(record)} has a null value, which no row can be: drop it with a transform"
        )
    schema = record.value_schema
    if schema is None or schema.type is not Type.STRUCT or not isinstance(record.value, Struct):
        raise DataError(
            f"record {_text(record)} has no struct with a schema as its value, which a table needs: use a converter "
            "with schemas"
        )
    return schema


def _place(record: SinkRecord) -> Place:
    return Place(record.original_topic, record.original_partition)


def _text(record: SinkRecord) -> str:
    return f"{record.original_topic}-{record.original_partition}@{record.offset}"


def widened(kind: pa.DataType, of: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """A type with some types replaced, at every depth."""
    if kind in of:
        return of[kind]
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", widened(kind.value_type, of), kind.value_field.nullable))
    if pa.types.is_map(kind):
        return pa.map_(widened(kind.key_type, of), widened(kind.item_type, of))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([pa.field(one.name, widened(one.type, of), one.nullable) for one in fields])
    return kind
