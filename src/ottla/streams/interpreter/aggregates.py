"""Aggregates without windows, of streams and of tables."""

from __future__ import annotations

from ottla.streams.errors import ProcessingError
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.record_cache import ChangeCache, only_last_change_matters
from ottla.streams.records import Change, Record


class _WithStore(NodeProcessor):
    def open(self) -> None:
        self.store = self.task.stores[self.operator.store]
        if self.task.cache_changes and only_last_change_matters(self.node):
            self._cache = ChangeCache(self.forward)
            self.forward = self._cache.add

    def flush(self) -> None:
        if self._cache is not None:
            self._cache.flush()

    _cache: ChangeCache | None = None


class AggregateProcessor(_WithStore):
    """A record without key or value changes nothing."""

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
        shown = (
            (operator.initializer() if held is None else self.store.get(key).value)
            if operator.send_old
            else None
        )
        new = operator.aggregator(key, record.value, old)
        self.store.put(key, new, timestamp)
        self.forward(Record(key, Change(new, shown), timestamp, record.headers))


class ReduceProcessor(_WithStore):
    def process(self, record: Record) -> None:
        key = record.key
        if key is None or record.value is None:
            return
        held = self.store.get(key)
        if held is None:
            old, new, timestamp = None, record.value, record.timestamp
        else:
            old = self.store.get(key).value if self.operator.send_old else None
            new, timestamp = (
                self.operator.reducer(held.value, record.value),
                max(record.timestamp, held.timestamp),
            )
        self.store.put(key, new, timestamp)
        self.forward(Record(key, Change(new, old), timestamp, record.headers))


class TableAggregateProcessor(_WithStore):
    """Takes the old part of a row away, then adds its new part."""

    def process(self, record: Record) -> None:
        key, change, operator = record.key, record.value, self.operator
        if key is None:
            raise ProcessingError(f"{self.node.name} was given a row without a key")
        held = self.store.get(key)
        old = held.value if held is not None else None
        timestamp = record.timestamp
        result = old
        shown = self.store.get(key).value if operator.send_old and held is not None else None
        if change.old is not None and old is not None:
            result = operator.subtractor(key, change.old, old)
            timestamp = max(timestamp, held.timestamp)
        if change.new is not None:
            result = operator.adder(key, change.new, operator.initializer() if result is None else result)
            if held is not None:
                timestamp = max(timestamp, held.timestamp)
        self.store.put(key, result, timestamp)
        self.forward(Record(key, Change(result, shown), timestamp, record.headers))


class TableReduceProcessor(_WithStore):
    def process(self, record: Record) -> None:
        key, change, operator = record.key, record.value, self.operator
        if key is None:
            raise ProcessingError(f"{self.node.name} was given a row without a key")
        held = self.store.get(key)
        old = held.value if held is not None else None
        timestamp = record.timestamp
        result = old
        shown = self.store.get(key).value if operator.send_old and held is not None else None
        if change.old is not None and old is not None:
            result = operator.subtractor(old, change.old)
            timestamp = max(timestamp, held.timestamp)
        if change.new is not None:
            if result is None:
                result = change.new
            else:
                result = operator.adder(result, change.new)
                timestamp = max(timestamp, held.timestamp)
        self.store.put(key, result, timestamp)
        self.forward(Record(key, Change(result, shown), timestamp, record.headers))
