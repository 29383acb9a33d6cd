"""One task: the processors of some nodes, their stores, their idea of time. Engines feed it and take what it emits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ottla.streams.graph.operators import GlobalTableSource, Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import Punctuation, PunctuationType, RecordMetadata
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.registry import make_processor
from ottla.streams.interpreter.stores import NEVER
from ottla.streams.records import Record

Emit = Callable[[Node, Record], None]
"""Takes what leaves the task: the node it was meant for (a sink, or one that runs elsewhere) and the record."""


class HasScalars(Protocol):
    scalars: tuple[str, ...]


class Task:
    """Feed it with `process`. With `cache_changes`, tables hand on only their last change of a batch, at `flush`,
    where nothing that follows could tell the difference: what Kafka Streams' record caches do."""

    def __init__(
        self,
        nodes: Iterable[Node],
        stores: Mapping[str, Any],
        emit: Emit,
        *,
        now_ms: Callable[[], int],
        scalars: Mapping[str, Any] | None = None,
        cache_changes: bool = False,
    ) -> None:
        self.cache_changes = cache_changes
        self.stores = stores
        self.emit = emit
        self.now_ms = now_ms
        self.stream_time = NEVER
        self.metadata: RecordMetadata | None = None
        self.clocks: dict[str, Any] = {}
        self._punctuations: list[Punctuation] = []
        self._processors: dict[str, NodeProcessor] = {}
        chosen = list(nodes)
        for node in reversed(chosen):
            self._processors[node.name] = make_processor(node, self, self._processors)
        if scalars is not None:
            self._restore(scalars)
        for node in chosen:
            self._processors[node.name].open()
        if scalars is not None:
            self._restore_timers(scalars)

    def process(self, node: str, record: Record, metadata: RecordMetadata | None = None) -> None:
        """A record arrives at a node; for sources this also moves the task's time."""
        self.metadata = metadata
        if record.timestamp > self.stream_time:
            self.stream_time = record.timestamp
        self._processors[node].process(record)
        if self._punctuations:
            self._punctuate(PunctuationType.STREAM_TIME, self.stream_time)

    def processor(self, node: str) -> NodeProcessor:
        return self._processors[node]

    def punctuate_wall_clock(self) -> None:
        self._punctuate(PunctuationType.WALL_CLOCK_TIME, self.now_ms())

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        first = 0 if kind is PunctuationType.STREAM_TIME else self.now_ms() + interval_ms
        timer = Punctuation(interval_ms, kind, callback, first)
        self._punctuations.append(timer)
        return timer

    def _punctuate(self, kind: PunctuationType, now_ms: int) -> None:
        fired = True
        while fired:
            fired = False
            for timer in self._punctuations:
                fired |= timer.kind is kind and timer.fire(now_ms)
        self._punctuations = [timer for timer in self._punctuations if not timer.cancelled]

    def close(self) -> None:
        for processor in self._processors.values():
            processor.close()

    def _holders(self) -> Iterable[tuple[str, HasScalars]]:
        yield from ((f"s:{name}", store) for name, store in self.stores.items())
        yield from ((f"n:{name}", processor) for name, processor in self._processors.items())

    def _restore(self, scalars: Mapping[str, Any]) -> None:
        for name, holder in self._holders():
            for field, value in scalars.get(name, {}).items():
                setattr(holder, field, value)
        self.clocks.update(scalars.get("clocks", {}))
        self.stream_time = scalars.get("stream_time", NEVER)

    def _restore_timers(self, scalars: Mapping[str, Any]) -> None:
        for timer, next_ms in zip(self._punctuations, scalars.get("timers", ()), strict=False):
            timer.next_ms = next_ms

    def save(self) -> dict[str, Any]:
        """The small facts beside the stores that the next task of these nodes must know: times, timers, segments."""
        saved: dict[str, Any] = {
            name: {field: getattr(holder, field) for field in holder.scalars}
            for name, holder in self._holders()
            if holder.scalars
        }
        saved["clocks"] = {name: dict(clock) for name, clock in self.clocks.items()}
        saved["timers"] = tuple(timer.next_ms for timer in self._punctuations)
        saved["stream_time"] = self.stream_time
        return saved

    def flush(self) -> None:
        """Hands on what processors gathered over a batch."""
        for processor in self._processors.values():
            processor.flush()

    def next_wall_clock_ms(self) -> int | None:
        """When the next timer by the clock is due."""
        due = [timer.next_ms for timer in self._punctuations if timer.kind is PunctuationType.WALL_CLOCK_TIME]
        return min(due, default=None)


def is_global(node: Node) -> bool:
    """Whether a source feeds a global table."""
    return isinstance(node.operator, Source) and any(
        isinstance(child.operator, GlobalTableSource) for child in node.children
    )
