"""Operators without state, and processors of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from ottla.streams.graph import operators as op
from ottla.streams.interpreter.context import Processor, ProcessorContext
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.records import Record
from ottla.streams.type_variables import Unknown


class SinkProcessor(NodeProcessor[op.Sink]):
    """Gives a record to the engine."""

    def process(self, record: Record) -> None:
        self.task.emit(self.node, record)


class GateProcessor(NodeProcessor[op.Gate]):
    """Drops records without a key."""

    def process(self, record: Record) -> None:
        if record.key is not None or self.operator.keeps_null_keys:
            self.forward(record)


O = TypeVar("O", bound=op.Map | op.SelectKey | op.MapValues | op.FlatMap | op.FlatMapValues)  # noqa: E741


class _WithMapper(NodeProcessor[O]):
    def open(self) -> None:
        self.call: Callable[[Record], Unknown] = self.operator.mapper.of_record


class MapProcessor(_WithMapper[op.Map]):
    """Gives a record a new key and value."""

    def process(self, record: Record) -> None:
        key, value = self.call(record)
        self.forward(Record(key, value, record.timestamp, record.headers))


class SelectKeyProcessor(_WithMapper[op.SelectKey]):
    """Gives a record a new key."""

    def process(self, record: Record) -> None:
        self.forward(Record(self.call(record), record.value, record.timestamp, record.headers))


class MapValuesProcessor(_WithMapper[op.MapValues]):
    """Gives a record a new value."""

    def process(self, record: Record) -> None:
        self.forward(Record(record.key, self.call(record), record.timestamp, record.headers))


class FlatMapProcessor(_WithMapper[op.FlatMap]):
    """Makes any number of records of one."""

    def process(self, record: Record) -> None:
        for key, value in self.call(record):
            self.forward(Record(key, value, record.timestamp, record.headers))


class FlatMapValuesProcessor(_WithMapper[op.FlatMapValues]):
    """Makes any number of records of one, with its key."""

    def process(self, record: Record) -> None:
        key, timestamp, headers, forward = record.key, record.timestamp, record.headers, self.forward
        for value in self.call(record):
            forward(Record(key, value, timestamp, headers))


class FilterProcessor(NodeProcessor[op.Filter]):
    """Passes a record on where the predicate holds."""

    def open(self) -> None:
        self.call: Callable[[Record], object] = self.operator.predicate.of_record

    def process(self, record: Record) -> None:
        holds = self.call(record)
        if holds is not None and bool(holds) != self.operator.negate:
            self.forward(record)


class PeekProcessor(NodeProcessor[op.Peek]):
    """Calls a function and passes the record on."""

    def open(self) -> None:
        self.call: Callable[[Record], object] = self.operator.action.of_record

    def process(self, record: Record) -> None:
        self.call(record)
        self.forward(record)


class ForeachProcessor(NodeProcessor[op.Foreach]):
    """Calls a function."""

    def open(self) -> None:
        self.call: Callable[[Record], object] = self.operator.action.of_record

    def process(self, record: Record) -> None:
        self.call(record)


class PrintProcessor(NodeProcessor[op.Print]):
    """Writes a record to the standard output."""

    def process(self, record: Record) -> None:
        sys.stdout.write(f"[{self.operator.label}]: {record.key}, {record.value}\n")


class BranchProcessor(NodeProcessor[op.Branch]):
    """Passes a record to the first branch whose predicate holds."""

    def process(self, record: Record) -> None:
        for predicate, child in zip(self.operator.predicates, self.operator.children, strict=True):
            if predicate.of_record(record):
                self._children[child](record)
                return
        if self.operator.default is not None:
            self._children[self.operator.default](record)


class UserProcessor(NodeProcessor[op.Process]):
    """Runs a processor of the user's own; `init` and `close` may be missing."""

    def open(self) -> None:
        self._user = self.operator.make()
        context: ProcessorContext = ProcessorContext(
            self.task, self.node.name, self.node.stores, self._pass_on
        )
        if hasattr(self._user, "init"):
            self._user.init(context)
        elif isinstance(self._user, Processor):
            self._user.context = context

    def process(self, record: Record) -> None:
        self._user.process(record)

    def close(self) -> None:
        if hasattr(self._user, "close"):
            self._user.close()

    def _pass_on(self, record: Record, child: str | None) -> None:
        if child is None:
            self.forward(record)
        else:
            self._children[child](record)
