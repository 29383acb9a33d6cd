"""Operators of tables: sources, filters, maps, joins by key, and the way to a new grouping."""

from __future__ import annotations

from typing import TypeVar

from ottla.streams.errors import ProcessingError
from ottla.streams.graph.operators import (
    GlobalTableSource,
    JoinKind,
    TableFilter,
    TableJoinMerge,
    TableJoinSide,
    TableMapValues,
    TableReplica,
    TableSelect,
    TableSource,
    TableToStream,
)
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.stores import TableStore
from ottla.streams.interpreter.views import open_view
from ottla.streams.records import Change, Record

O = TypeVar("O", bound=TableFilter | TableMapValues)  # noqa: E741


class TableSourceProcessor(NodeProcessor[TableSource]):
    """Makes a table of a stream: the last value that arrives is the value, and a null deletes."""

    def open(self) -> None:
        operator = self.operator
        self.store = self.store_of(operator.store, TableStore) if operator.materialized else None

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        old = None
        if self.store is not None:
            held = self.store.get(record.key)
            old = held.value if held is not None and self.operator.send_old else None
            self.store.put(record.key, record.value, record.timestamp)
        self.forward(record.with_value(Change(record.value, old)))


class GlobalTableSourceProcessor(NodeProcessor[GlobalTableSource]):
    """Keeps all rows of a global table."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, TableStore)

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.store.put(record.key, record.value, record.timestamp)


class TableReplicaProcessor(NodeProcessor[TableReplica]):
    """Keeps a copy of a table for a later stage."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, TableStore)

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value.new, record.timestamp)


class _TableStep(NodeProcessor[O]):
    def open(self) -> None:
        self.store = self.store_of(self.operator.store, TableStore) if self.operator.store else None

    def _compute(self, record: Record, value: object) -> object:
        raise AssertionError("subclasses compute")

    def _old(self, record: Record) -> object:
        if not self.operator.send_old:
            return None
        if self.store is None:
            return self._compute(record, record.value.old)
        held = self.store.get(record.key)
        return None if held is None else held.value

    def _pass_on(self, record: Record, new: object, old: object) -> None:
        if self.store is not None:
            self.store.put(record.key, new, record.timestamp)
        self.forward(record.with_value(Change(new, old)))


class TableFilterProcessor(_TableStep[TableFilter]):
    """Passes rows for which the predicate holds; deletes the others downstream."""

    def _compute(self, record: Record, value: object) -> object:
        if value is None:
            return None
        holds = self.operator.predicate.of_record(record.with_value(value))
        return value if holds is not None and bool(holds) != self.operator.negate else None

    def process(self, record: Record) -> None:
        new = self._compute(record, record.value.new)
        old = self._old(record)
        if self.operator.send_old and old is None and new is None:
            return
        self._pass_on(record, new, old)


class TableMapValuesProcessor(_TableStep[TableMapValues]):
    """Gives rows new values."""

    def _compute(self, record: Record, value: object) -> object:
        return None if value is None else self.operator.mapper.of_record(record.with_value(value))

    def process(self, record: Record) -> None:
        new = self._compute(record, record.value.new)
        self._pass_on(record, new, self._old(record))


class TableToStreamProcessor(NodeProcessor[TableToStream]):
    """Passes the new value of each change on as a record."""

    def process(self, record: Record) -> None:
        self.forward(Record(record.key, record.value.new, record.timestamp, record.headers))


class TableSelectProcessor(NodeProcessor[TableSelect]):
    """Passes a row on under its new key: one change when the key stays, else one to take away and one to add."""

    def process(self, record: Record) -> None:
        if record.key is None:
            raise ProcessingError(f"{self.node.name} received a row without a key")
        old = self._select(record, record.value.old)
        new = self._select(record, record.value.new)
        if old is not None and new is not None and old[0] == new[0]:
            self.forward(Record(old[0], Change(new[1], old[1]), record.timestamp, record.headers))
            return
        if old is not None:
            self.forward(Record(old[0], Change(None, old[1]), record.timestamp, record.headers))
        if new is not None:
            self.forward(Record(new[0], Change(new[1], None), record.timestamp, record.headers))

    def _select(self, record: Record, value: object) -> tuple[object, object] | None:
        if value is None:
            return None
        key, selected = self.operator.mapper.of_record(record.with_value(value))
        return None if key is None or selected is None else (key, selected)


class TableJoinSideProcessor(NodeProcessor[TableJoinSide]):
    """Joins a change of one side with the current row of the other."""

    def open(self) -> None:
        self.lookup = open_view(self.operator.other, self.task.stores)

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        change, kind = record.value, self.operator.kind
        held = self.lookup(record.key)
        other = held.value if held is not None else None
        if other is None and not self._goes_on_alone(kind, change):
            return
        timestamp = max(record.timestamp, held.timestamp) if held is not None else record.timestamp
        new = self._join(record.key, change.new, other, kind)
        old = self._join(record.key, change.old, other, kind) if self.operator.send_old else None
        self.forward(Record(record.key, Change(new, old), timestamp, record.headers))

    @staticmethod
    def _goes_on_alone(kind: JoinKind, change: Change) -> bool:
        return kind in (JoinKind.LEFT, JoinKind.OUTER) and (change.new is not None or change.old is not None)

    def _join(self, key: object, mine: object, other: object, kind: JoinKind) -> object:
        if mine is None and (other is None or kind in (JoinKind.INNER, JoinKind.LEFT)):
            return None
        return self.operator.joiner.join(key, mine, other)


class TableJoinMergeProcessor(NodeProcessor[TableJoinMerge]):
    """Keeps and passes on the changes of both sides."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, TableStore) if self.operator.store else None

    def process(self, record: Record) -> None:
        if self.store is not None:
            self.store.put(record.key, record.value.new, record.timestamp)
            old = record.value.old if self.operator.send_old else None
            self.forward(record.with_value(Change(record.value.new, old)))
        else:
            self.forward(record)
