"""Operators that remember nothing, and processors of the user's own."""

from __future__ import annotations

import sys
from typing import Any

from ottla.streams.interpreter.context import Processor, ProcessorContext
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.records import Record


class SinkProcessor(NodeProcessor):
    def process(self, record: Record) -> None:
        self.task.emit(self.node, record)


class GateProcessor(NodeProcessor):
    def process(self, record: Record) -> None:
        if record.key is not None or self.operator.keeps_null_keys:
            self.forward(record)


class _WithFunction(NodeProcessor):
    function_field = "mapper"

    def open(self) -> None:
        self.call = getattr(self.operator, self.function_field).of_record


class MapProcessor(_WithFunction):
    def process(self, record: Record) -> None:
        key, value = self.call(record)
        self.forward(Record(key, value, record.timestamp, record.headers))


class SelectKeyProcessor(_WithFunction):
    def process(self, record: Record) -> None:
        self.forward(Record(self.call(record), record.value, record.timestamp, record.headers))


class MapValuesProcessor(_WithFunction):
    def process(self, record: Record) -> None:
        self.forward(Record(record.key, self.call(record), record.timestamp, record.headers))


class FlatMapProcessor(_WithFunction):
    def process(self, record: Record) -> None:
        for key, value in self.call(record):
            self.forward(Record(key, value, record.timestamp, record.headers))


class FlatMapValuesProcessor(_WithFunction):
    def process(self, record: Record) -> None:
        key, timestamp, headers, forward = record.key, record.timestamp, record.headers, self.forward
        for value in self.call(record):
            forward(Record(key, value, timestamp, headers))


class FilterProcessor(_WithFunction):
    function_field = "predicate"

    def process(self, record: Record) -> None:
        holds = self.call(record)
        if holds is not None and bool(holds) != self.operator.negate:
            self.forward(record)


class PeekProcessor(_WithFunction):
    function_field = "action"

    def process(self, record: Record) -> None:
        self.call(record)
        self.forward(record)


class ForeachProcessor(_WithFunction):
    function_field = "action"

    def process(self, record: Record) -> None:
        self.call(record)


class PrintProcessor(NodeProcessor):
    def process(self, record: Record) -> None:
        sys.stdout.write(f"[{self.operator.label}]: {record.key}, {record.value}\n")


class BranchProcessor(NodeProcessor):
    def process(self, record: Record) -> None:
        for predicate, child in zip(self.operator.predicates, self.operator.children, strict=True):
            if predicate.of_record(record):
                self._children[child](record)
                return
        if self.operator.default is not None:
            self._children[self.operator.default](record)


class UserProcessor(NodeProcessor):
    def open(self) -> None:
        self._user: Any = self.operator.make()
        context = ProcessorContext(self.task, self.node.name, self.node.stores, self._hand_on)
        if hasattr(self._user, "init"):
            self._user.init(context)
        elif isinstance(self._user, Processor):
            self._user.context = context

    def process(self, record: Record) -> None:
        self._user.process(record)

    def close(self) -> None:
        if hasattr(self._user, "close"):
            self._user.close()

    def _hand_on(self, record: Record, child: str | None) -> None:
        if child is None:
            self.forward(record)
        else:
            self._children[child](record)
