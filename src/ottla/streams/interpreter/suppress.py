"""Suppress: holds a table's changes back until they are final, or for a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.streams.errors import ProcessingError
from ottla.streams.graph.operators import Operator, Suppress
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.buffers import SuppressBuffer
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.stores import NEVER
from ottla.streams.records import Record, Windowed

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task

_TIMES = struct.Struct(">qq")


class SuppressProcessor(NodeProcessor[Suppress]):
    """Releases changes by the times of the records that it sees."""

    scalars = ("observed",)

    def __init__(self, node: Node, task: Task, known: Mapping[str, NodeProcessor[Operator]]) -> None:
        self.observed = NEVER
        super().__init__(node, task, known)

    def open(self) -> None:
        self.buffer = self.store_of(self.operator.store, SuppressBuffer)

    def process(self, record: Record) -> None:
        self.observed = max(self.observed, record.timestamp)
        windowed = self.operator.windowed
        time = record.key.end if windowed else record.timestamp
        self.buffer.hold(
            time, _name(record.key), (record.key, record.value, record.timestamp, record.headers)
        )
        suppressed = self.operator.suppressed
        expiry = self.observed - (self.operator.grace_ms if windowed else suppressed.wait_ms)
        self._release(lambda held_since: held_since <= expiry)
        limit = suppressed.max_records
        if limit is not None and self.buffer.count > limit:
            if not suppressed.emit_early_when_full:
                raise ProcessingError(
                    f"{self.node.name} holds {self.buffer.count} changes back, more than its limit of {limit}"
                )
            self._release(lambda _: self.buffer.count > limit)

    def _release(self, may_go: Callable[[int], bool]) -> None:
        for key, change, timestamp, headers in self.buffer.release_while(may_go):
            if change.new is not None or not self.operator.windowed:
                self.forward(Record(key, change, timestamp, headers))


def _name(key: object) -> bytes:
    """Keys of one time leave in the order of their bytes, a window's times after the key, as in Kafka Streams."""
    if isinstance(key, Windowed):
        return encode_key(key.key) + _TIMES.pack(key.end, key.start)
    return encode_key(key)
