"""Aggregates in time, sliding and session windows: which windows a record belongs to, and which come too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla.streams.graph.operators import Operator, SessionAggregate, SlidingAggregate, WindowAggregate
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.record_cache import ChangeCache, only_last_change_matters
from ottla.streams.interpreter.state_map import own_copy
from ottla.streams.interpreter.stores import NEVER, SessionStore, WindowStore
from ottla.streams.records import Change, Record, ValueAndTimestamp, Window, Windowed

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task

O = TypeVar("O", bound=WindowAggregate | SlidingAggregate | SessionAggregate)  # noqa: E741


class _Windowed(NodeProcessor[O]):
    scalars = ("observed", "last_emitted")

    _cache: ChangeCache | None = None

    def open(self) -> None:
        if self.task.cache_changes and only_last_change_matters(self.node):
            self._cache = ChangeCache(self.forward)
            self.forward = self._cache.add

    def flush(self) -> None:
        if self._cache is not None:
            self._cache.flush()

    def __init__(self, node: Node, task: Task, known: Mapping[str, NodeProcessor[Operator]]) -> None:
        self.observed = NEVER
        self.last_emitted = NEVER
        super().__init__(node, task, known)

    def _send(self, record: Record, window: Window, new: object, old: object, timestamp: int) -> None:
        if self.operator.emit_on_close:
            return
        change = Change(new, old if self.operator.send_old else None)
        self.forward(Record(Windowed(record.key, window), change, timestamp, record.headers))


class WindowAggregateProcessor(_Windowed[WindowAggregate]):
    """A window takes records until stream time passes its end by the grace period."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, WindowStore)
        super().open()

    def process(self, record: Record) -> None:
        key, timestamp = record.key, record.timestamp
        if key is None:
            return
        operator, store = self.operator, self.store
        self.observed = max(self.observed, timestamp)
        close_time = self.observed - operator.windows.grace_ms
        for window in operator.windows.windows_for(timestamp):
            if window.end <= close_time:
                continue
            held = store.fetch(key, window.start)
            if held is None:
                old, time = operator.initializer(), timestamp
            else:
                old, time = held.value, max(timestamp, held.timestamp)
            shown = own_copy(old) if operator.send_old else None
            new = operator.aggregator(key, record.value, old)
            store.put(key, new, window.start, time)
            self._send(record, window, new, shown, time)
        if operator.emit_on_close:
            self._emit_closed(record, close_time)

    def count_many(self, key: object, start: int, count: int, latest: int) -> None:
        """Counts several records of one key in one window, for windows that only count."""
        held = self.store.fetch(key, start)
        total, time = (count, latest) if held is None else (held.value + count, max(latest, held.timestamp))
        self.store.put(key, total, start, time)
        window = Window(start, start + self.operator.windows.size_ms)
        self.forward(Record(Windowed(key, window), Change(total, None), time))

    def _emit_closed(self, record: Record, close_time: int) -> None:
        size = self.operator.windows.size_ms
        if self.last_emitted != NEVER and self.last_emitted >= close_time:
            return
        last = close_time - size
        if last < 0:
            return
        first = 0 if self.last_emitted == NEVER else max(0, self.last_emitted - size) + 1
        for key, start, held in self.store.fetch_all(first, last):
            window = Windowed(key, Window(start, start + size))
            self.forward(Record(window, Change(held.value, None), held.timestamp, record.headers))
        self.last_emitted = close_time


class SlidingAggregateProcessor(_Windowed[SlidingAggregate]):
    """Each record ends a window, and begins one just after it when later records lie within the difference."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, WindowStore)
        super().open()

    def process(self, record: Record) -> None:
        key, timestamp = record.key, record.timestamp
        if key is None or record.value is None:
            return
        difference = self.operator.windows.difference_ms
        self.observed = max(self.observed, timestamp)
        close_time = self.observed - self.operator.windows.grace_ms
        if timestamp + difference < close_time:
            return
        if timestamp < difference:
            self._process_early(record, close_time, difference)
        else:
            self._process(record, close_time, difference)
        if self.operator.emit_on_close:
            self._emit_closed(record, close_time)

    def _process(self, record: Record, close_time: int, difference: int) -> None:
        timestamp = record.timestamp
        starts: set[int] = set()
        left: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        previous: int | None = None
        left_exists = right_exists = False
        near = self.store.fetch_range(record.key, max(0, timestamp - 2 * difference), timestamp + 1)
        for start, held in reversed(near):
            starts.add(start)
            end = start + difference
            if start == timestamp + 1:
                right_exists = True
            elif end > timestamp:
                right = right or held
                self._update(record, Window(start, end), held, close_time)
            elif end == timestamp:
                left_exists = True
                self._update(record, Window(start, end), held, close_time)
                if held.timestamp >= timestamp:
                    return
                previous = held.timestamp
            else:
                left = held
                previous = held.timestamp
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self._update_new(record, previous + 1, difference, close_time)
        if not left_exists:
            window = Window(timestamp - difference, timestamp)
            if previous is not None and left is not None and timestamp - difference <= previous:
                begun = ValueAndTimestamp(own_copy(left.value), timestamp)
            else:
                begun = ValueAndTimestamp(self.operator.initializer(), timestamp)
            self._update(record, window, begun, close_time)
        if not right_exists and right is not None and right.timestamp > timestamp:
            self._open_right(record, right, difference)

    def _process_early(self, record: Record, close_time: int, difference: int) -> None:
        """Before time reaches the difference there is one window that begins at zero."""
        timestamp = record.timestamp
        starts: set[int] = set()
        combined: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        previous: int | None = None
        right_exists = False
        for start, held in self.store.fetch_range(record.key, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                combined = held
                if held.timestamp < timestamp:
                    previous = held.timestamp
            elif start <= timestamp:
                right = held
                self._update(record, Window(start, start + difference), held, close_time)
            else:
                right_exists = True
        if right is None and combined is not None and combined.timestamp > timestamp:
            right = combined
        if not right_exists and right is not None and right.timestamp > timestamp:
            self._open_right(record, right, difference)
        if previous is not None and previous + 1 not in starts:
            self._update_new(record, previous + 1, difference, close_time)
        begun = combined or ValueAndTimestamp(self.operator.initializer(), timestamp)
        self._update(record, Window(0, difference), begun, close_time)

    def _open_right(self, record: Record, right: ValueAndTimestamp, difference: int) -> None:
        start = record.timestamp + 1
        value = own_copy(right.value)
        self.store.put(record.key, value, start, right.timestamp)
        self._send(record, Window(start, start + difference), value, None, right.timestamp)

    def _update_new(self, record: Record, start: int, difference: int, close_time: int) -> None:
        begun = ValueAndTimestamp(self.operator.initializer(), record.timestamp)
        self._update(record, Window(start, start + difference), begun, close_time)

    def _update(self, record: Record, window: Window, held: ValueAndTimestamp, close_time: int) -> None:
        if window.end < close_time:
            return
        shown = own_copy(held.value) if self.operator.send_old else None
        new = self.operator.aggregator(record.key, record.value, own_copy(held.value))
        timestamp = max(record.timestamp, held.timestamp)
        self.store.put(record.key, new, window.start, timestamp)
        self._send(record, window, new, shown, timestamp)

    def _emit_closed(self, record: Record, close_time: int) -> None:
        if self.last_emitted != NEVER and self.last_emitted >= close_time:
            return
        difference = self.operator.windows.difference_ms
        last = close_time - difference - 1
        if last < 0:
            return
        first = 0 if self.last_emitted == NEVER else max(0, self.last_emitted - difference)
        for key, start, held in self.store.fetch_all(first, last):
            window = Windowed(key, Window(start, start + difference))
            self.forward(Record(window, Change(held.value, None), held.timestamp, record.headers))
        self.last_emitted = close_time


class SessionAggregateProcessor(_Windowed[SessionAggregate]):
    """A record merges all sessions within the gap of it into one; the merged ones are deleted downstream."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, SessionStore)
        super().open()

    def process(self, record: Record) -> None:
        key, timestamp, operator = record.key, record.timestamp, self.operator
        if key is None:
            return
        gap = operator.windows.gap_ms
        self.observed = max(self.observed, timestamp)
        close_time = self.observed - operator.windows.grace_ms - gap
        merged = self.store.find(key, timestamp - gap, timestamp + gap)
        result = operator.initializer()
        start = end = timestamp
        for window, value in merged:
            result = operator.merger(key, result, own_copy(value))
            start, end = min(start, window.start), max(end, window.end)
        if end >= close_time:
            if (start, end) != (timestamp, timestamp):
                for window, value in merged:
                    self.store.remove(key, window)
                    self._send(record.with_headers(()), window, None, value, window.end)
            result = operator.aggregator(key, record.value, result)
            self.store.put(key, Window(start, end), result)
            self._send(record.with_headers(()), Window(start, end), result, None, end)
        if operator.emit_on_close:
            self._emit_closed(record, close_time)

    def _emit_closed(self, record: Record, close_time: int) -> None:
        if self.last_emitted != NEVER and self.last_emitted >= close_time:
            return
        last = close_time - 1
        if last < 0:
            return
        first = max(0, self.last_emitted)
        for windowed, value in self.store.find_ended(first, last):
            self.forward(Record(windowed, Change(value, None), windowed.end, record.headers))
        self.last_emitted = close_time
