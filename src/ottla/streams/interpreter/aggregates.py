"""Aggregates without windows, of streams and of tables."""

from __future__ import annotations

from typing import TypeVar

from ottla.streams.errors import ProcessingError
from ottla.streams.graph.operators import Aggregate, Reduce, TableAggregate, TableReduce
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.record_cache import ChangeCache, only_last_change_matters
from ottla.streams.interpreter.stores import TableStore
from ottla.streams.records import Change, Record

O = TypeVar("O", bound=Aggregate | Reduce | TableAggregate | TableReduce)  # noqa: E741


class _WithStore(NodeProcessor[O]):
    def open(self) -> None:
        self.store = self.store_of(self.operator.store, TableStore)
        if self.task.cache_changes and only_last_change_matters(self.node):
            self._cache = ChangeCache(self.forward)
            self.forward = self._cache.add

    def flush(self) -> None:
        if self._cache is not None:
            self._cache.flush()

    _cache: ChangeCache | None = None


class AggregateProcessor(_WithStore[Aggregate]):
    """Folds records into a result; a record without key or value changes nothing."""

    def process(self, record: Record) -> None:
        key = record.key
        if key is None or record.value is None:
            return
        operator = self.operator
        held = self.store.get(key)
        if held is None:
            old, timestamp = operator.initializer(), record.timestamp
        else:
            old, timestamp = held.value, max(record.timestamp, held.timestamp)
        shown = None
        if operator.send_old:
            again = self.store.get(key)
            shown = operator.initializer() if again is None else again.value
        new = operator.aggregator(key, record.value, old)
        self.store.put(key, new, timestamp)
        self.forward(Record(key, Change(new, shown), timestamp, record.headers))


class ReduceProcessor(_WithStore[Reduce]):
    """Folds records into a result of their own type."""

    def process(self, record: Record) -> None:
        key = record.key
        if key is None or record.value is None:
            return
        held = self.store.get(key)
        if held is None:
            old, new, timestamp = None, record.value, record.timestamp
        else:
            # A copy of its own: the reducer may change the one it is given.
            again = self.store.get(key) if self.operator.send_old else None
            old = None if again is None else again.value
            new, timestamp = (
                self.operator.reducer(held.value, record.value),
                max(record.timestamp, held.timestamp),
            )
        self.store.put(key, new, timestamp)
        self.forward(Record(key, Change(new, old), timestamp, record.headers))


class TableAggregateProcessor(_WithStore[TableAggregate]):
    """Takes the old part of a row away, then adds its new part."""

    def process(self, record: Record) -> None:
        key, change, operator = record.key, record.value, self.operator
        if key is None:
            raise ProcessingError(f"{self.node.name} received a row without a key")
        held = self.store.get(key)
        old = held.value if held is not None else None
        timestamp = record.timestamp
        result = old
        again = self.store.get(key) if operator.send_old else None
        shown = None if again is None else again.value
        if change.old is not None and held is not None and old is not None:
            result = operator.subtractor(key, change.old, old)
            timestamp = max(timestamp, held.timestamp)
        if change.new is not None:
            result = operator.adder(key, change.new, operator.initializer() if result is None else result)
            if held is not None:
                timestamp = max(timestamp, held.timestamp)
        self.store.put(key, result, timestamp)
        self.forward(Record(key, Change(result, shown), timestamp, record.headers))


class TableReduceProcessor(_WithStore[TableReduce]):
    """Takes the old part of a row away, then adds its new part, with results of the type of the rows."""

    def process(self, record: Record) -> None:
        key, change, operator = record.key, record.value, self.operator
        if key is None:
            raise ProcessingError(f"{self.node.name} received a row without a key")
        held = self.store.get(key)
        old = held.value if held is not None else None
        timestamp = record.timestamp
        result = old
        again = self.store.get(key) if operator.send_old else None
        shown = None if again is None else again.value
        if change.old is not None and held is not None and old is not None:
            result = operator.subtractor(old, change.old)
            timestamp = max(timestamp, held.timestamp)
        if change.new is not None:
            if result is None:
                result = change.new
            else:
                result = operator.adder(result, change.new)
                timestamp = max(timestamp, timestamp if held is None else held.timestamp)
        self.store.put(key, result, timestamp)
        self.forward(Record(key, Change(result, shown), timestamp, record.headers))
