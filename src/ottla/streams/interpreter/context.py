"""What a processor of the user's own sees: its context, its stores, its timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.streams.errors import TopologyError
from ottla.streams.records import Record
from ottla.streams.windows import Duration, to_ms

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task


class PunctuationType(Enum):
    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Punctuation:
    """A timer: what to call, how often, and when next; kept by its place among the task's timers."""

    interval_ms: int
    kind: PunctuationType
    call: Callable[[int], None]
    next_ms: int
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self, now_ms: int) -> bool:
        """Calls if it is time; times that were missed are called for once."""
        if self.cancelled or now_ms < self.next_ms:
            return False
        self.call(now_ms)
        missed = max(0, (now_ms - self.next_ms) // self.interval_ms)
        self.next_ms += (missed + 1) * self.interval_ms
        return True


class Processor:
    """Base of processors for `process()`: override what you need."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once for each task, before the first record."""
        self.context = context

    def process(self, record: Record) -> None:
        """Called for each record."""

    def close(self) -> None:
        """Called when the task ends."""


class ProcessorContext:
    """The way from a processor to its task."""

    def __init__(
        self, task: Task, node: str, stores: list[str], forward: Callable[[Record, str | None], None]
    ) -> None:
        self._task = task
        self._node = node
        self._stores = stores
        self._forward = forward

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hands a record on: to all that come next, or to one of them by name."""
        self._forward(record, child)

    def store(self, name: str) -> Any:
        if name not in self._stores:
            raise TopologyError(
                f"{self._node} asks for the state store {name}, but was not given it in process(stores=[...])"
            )
        return self._task.stores[name]

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        """Calls back with the time, every `interval`, by the time of records or by the clock."""
        return self._task.schedule(to_ms(interval), kind, callback)

    @property
    def stream_time_ms(self) -> int:
        return self._task.stream_time

    @property
    def system_time_ms(self) -> int:
        return self._task.now_ms()

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._task.metadata
