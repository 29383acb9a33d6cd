"""One task: the processors of some nodes, their stores and their clock. Engines feed it and take what it emits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ottla.streams.graph.operators import GlobalTableSource, Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import Punctuation, PunctuationType, RecordMetadata
from ottla.streams.interpreter.node import AnyProcessor
from ottla.streams.interpreter.registry import make_processor
from ottla.streams.interpreter.store_factory import StateStore
from ottla.streams.interpreter.stores import NEVER
from ottla.streams.records import Record
from ottla.streams.type_variables import Unknown

Emit = Callable[[Node, Record], None]
"""Takes what leaves the task: the node it is for (a sink, or one that another task runs) and the record."""

Scalars: TypeAlias = dict[str, Unknown]
"""Saved scalars: those of stores and processors by name, and the clocks, timers and stream time of the task."""


class Task:
    """Feed it with `process`. With `cache_changes`, tables pass on only their last change of a batch, at `flush`,
    where the others are not visible downstream: what Kafka Streams' record caches do."""

    def __init__(
        self,
        nodes: Iterable[Node],
        stores: Mapping[str, StateStore],
        emit: Emit,
        *,
        now_ms: Callable[[], int],
        scalars: Scalars | None = None,
        cache_changes: bool = False,
    ) -> None:
        self.cache_changes = cache_changes
        self.stores = stores
        self.emit = emit
        self.now_ms = now_ms
        self.stream_time = NEVER
        self.metadata: RecordMetadata | None = None
        self.clocks: dict[str, dict[str, int]] = {}
        self._punctuations: list[Punctuation] = []
        self._processors: dict[str, AnyProcessor] = {}
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
        """Processes a record at a node; the task's time moves with the latest record."""
        self.metadata = metadata
        if record.timestamp > self.stream_time:
            self.stream_time = record.timestamp
        self._processors[node].process(record)
        if self._punctuations:
            self._punctuate(PunctuationType.STREAM_TIME, self.stream_time)

    def processor(self, node: str) -> AnyProcessor:
        """The processor of a node."""
        return self._processors[node]

    def punctuate_wall_clock(self) -> None:
        """Calls the timers of the machine's clock that are due."""
        self._punctuate(PunctuationType.WALL_CLOCK_TIME, self.now_ms())

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        """Adds a timer."""
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
        """Closes all processors."""
        for processor in self._processors.values():
            processor.close()

    def _holders(self) -> Iterable[tuple[str, StateStore | AnyProcessor]]:
        yield from ((f"s:{name}", store) for name, store in self.stores.items())
        yield from ((f"n:{name}", processor) for name, processor in self._processors.items())

    def _restore(self, scalars: Scalars) -> None:
        for name, holder in self._holders():
            for field, value in scalars.get(name, {}).items():
                setattr(holder, field, value)
        self.clocks.update(scalars.get("clocks", {}))
        self.stream_time = scalars.get("stream_time", NEVER)

    def _restore_timers(self, scalars: Scalars) -> None:
        for timer, next_ms in zip(self._punctuations, scalars.get("timers", ()), strict=False):
            timer.next_ms = next_ms

    def save(self) -> Scalars:
        """The times, timers and segments beside the stores that the next task of these nodes needs."""
        saved: Scalars = {
            name: {field: getattr(holder, field) for field in holder.scalars}
            for name, holder in self._holders()
            if holder.scalars
        }
        saved["clocks"] = {name: dict(clock) for name, clock in self.clocks.items()}
        saved["timers"] = tuple(timer.next_ms for timer in self._punctuations)
        saved["stream_time"] = self.stream_time
        return saved

    def flush(self) -> None:
        """Passes on the changes that processors have cached over a batch."""
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
