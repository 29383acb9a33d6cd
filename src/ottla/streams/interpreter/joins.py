"""Joins of streams: with each other inside a window, with tables, with global tables."""

from __future__ import annotations

from typing import Final

from ottla.streams.graph.operators import JoinWindow, StreamJoinSide, StreamTableJoin
from ottla.streams.interpreter.buffers import TimeOrdered
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.stores import NEVER, WindowStore
from ottla.streams.interpreter.views import open_view
from ottla.streams.records import Record

_FAR: Final = 1 << 62


class JoinWindowProcessor(NodeProcessor[JoinWindow]):
    """The record first looks for partners, then it is kept for later ones."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, WindowStore)

    def process(self, record: Record) -> None:
        self.forward(record)
        if record.key is not None:
            self.store.put(record.key, record.value, record.timestamp, record.timestamp)


class StreamJoinSideProcessor(NodeProcessor[StreamJoinSide]):
    """Joins with all partners in the window; an outer join emits a record without partner when its window closes."""

    def open(self) -> None:
        operator = self.operator
        self.other = self.store_of(operator.other_store, WindowStore)
        self.waiting = self.store_of(operator.outer_store, TimeOrdered) if operator.outer_store else None
        self.clock: dict[str, int] = self.task.clocks.setdefault(
            operator.clock, {"stream_time": NEVER, "min_time": _FAR}
        )
        windows = operator.windows
        self.before = windows.before_ms if operator.left_side else windows.after_ms
        self.after = windows.after_ms if operator.left_side else windows.before_ms

    def process(self, record: Record) -> None:
        timestamp, operator, clock = record.timestamp, self.operator, self.clock
        clock["stream_time"] = max(clock["stream_time"], timestamp)
        if operator.outer and record.key is None and record.value is not None:
            self.forward(record.with_value(operator.joiner.join(None, record.value, None)))
            return
        if record.key is None or record.value is None:
            return
        if self.waiting is not None and timestamp == clock["stream_time"]:
            self._emit_closed(record, self.waiting)
        last = max(0, timestamp + self.after)
        partners = self.other.fetch_range(record.key, max(0, timestamp - self.before), last)
        for time, held in partners:
            if self.waiting is not None:
                self.waiting.delete((time, int(not operator.left_side), encode_key(record.key)))
            joined = operator.joiner.join(record.key, record.value, held.value)
            self.forward(Record(record.key, joined, max(timestamp, time), record.headers))
        if operator.outer and not partners:
            if self.waiting is None or last < clock["stream_time"]:
                joined = operator.joiner.join(record.key, record.value, None)
                self.forward(record.with_value(joined))
            else:
                clock["min_time"] = min(clock["min_time"], timestamp)
                place = (timestamp, int(operator.left_side), encode_key(record.key))
                held_values = self.waiting.get(place)
                values = (*(held_values[1] if held_values else ()), record.value)
                self.waiting.put(place, (record.key, values))

    def _emit_closed(self, record: Record, waiting: TimeOrdered) -> None:
        """Emits the records of both sides whose window has closed without a partner."""
        operator, clock = self.operator, self.clock
        windows = operator.windows
        now = clock["stream_time"]
        if clock["min_time"] + self.after + windows.grace_ms >= now:
            return
        clock["min_time"] = _FAR
        left_open = right_open = False
        for place, (key, values) in waiting.items():
            time, from_left = place[0], place[1] == 1
            clock["min_time"] = time
            if left_open and right_open:
                break
            reach = windows.after_ms if from_left else windows.before_ms
            if time + reach + windows.grace_ms >= now:
                left_open, right_open = left_open or from_left, right_open or not from_left
                continue
            mine = from_left == operator.left_side
            for value in values:
                left, right = (value, None) if mine else (None, value)
                joined = operator.joiner.join(key, left, right)
                self.forward(Record(key, joined, time, record.headers))
            waiting.delete(place)


class StreamTableJoinProcessor(NodeProcessor[StreamTableJoin]):
    """Joins a record with the table's current value; records without key or value are dropped."""

    def open(self) -> None:
        self.lookup = open_view(self.operator.table, self.task.stores)

    def process(self, record: Record) -> None:
        operator = self.operator
        if record.value is None and operator.key_of is None:
            return
        key = record.key if operator.key_of is None else operator.key_of.of_record(record)
        if record.value is None or (key is None and not operator.left):
            return
        held = None if key is None else self.lookup(key)
        if held is None and not operator.left:
            return
        joined = operator.joiner.join(record.key, record.value, None if held is None else held.value)
        self.forward(record.with_value(joined))
