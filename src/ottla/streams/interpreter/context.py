"""The Processor API: processors of the user's own, and their context with stores and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple

from ottla.streams.errors import TopologyError
from ottla.streams.records import Record
from ottla.streams.type_variables import K2, V2, K, Unknown, V
from ottla.streams.windows import Duration, to_ms

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task


class PunctuationType(Enum):
    """The clock of a timer: the times of the records, or the machine's clock.

    >>> PunctuationType.STREAM_TIME.value
    'stream time'
    """

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class RecordMetadata(NamedTuple):
    """The place of a record: topic, partition and offset.

    >>> RecordMetadata("clicks", partition=0, offset=42).offset
    42
    """

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Punctuation:
    """A timer: what to call, how often, and when next. A task finds it again by its place among the task's timers."""

    interval_ms: int
    kind: PunctuationType
    call: Callable[[int], None]
    next_ms: int
    cancelled: bool = False

    def cancel(self) -> None:
        """Stops the timer."""
        self.cancelled = True

    def fire(self, now_ms: int) -> bool:
        """Calls the function if it is time; one call stands for all times that were missed."""
        if self.cancelled or now_ms < self.next_ms:
            return False
        self.call(now_ms)
        missed = max(0, (now_ms - self.next_ms) // self.interval_ms)
        self.next_ms += (missed + 1) * self.interval_ms
        return True


class Processor(Generic[K, V, K2, V2]):
    """The base of processors for `KStream.process`: override what you need.

    It takes records with keys K and values V, and forwards records with keys K2 and values V2.

    >>> class Shout(Processor[str, str, str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.upper()))
    >>> builder = StreamsBuilder()
    >>> builder.stream("in").process(Shout).to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_input("in", "hello")
    >>> driver.read_all("out")
    [Record(None, 'HELLO', timestamp=0)]
    """

    context: ProcessorContext[K2, V2]

    def init(self, context: ProcessorContext[K2, V2]) -> None:
        """Called once for each task, before the first record; call it from your own `init`.

        >>> class Ticking(Processor):
        ...     def init(self, context):
        ...         super().init(context)
        ...         context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, print)
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Ticking)
        >>> TopologyTestDriver(builder).advance_time(1_000)
        1000
        """
        self.context = context

    def process(self, record: Record[K, V]) -> None:
        """Called for each record; does nothing unless it is overridden.

        >>> Processor().process(Record("a", "hello", timestamp=0))
        """

    def close(self) -> None:
        """Called when the task ends; does nothing unless it is overridden.

        >>> Processor().close()
        """


class ProcessorContext(Generic[K, V]):
    """The services for a processor: forward records, read and write stores, set timers.

    >>> class Dedupe(Processor[str, str, str, str]):
    ...     def process(self, record):
    ...         if self.context.store("seen").put_if_absent(record.value, True) is None:
    ...             self.context.forward(record)
    >>> builder = StreamsBuilder().add_state_store("seen")
    >>> builder.stream("in").process(Dedupe, stores=["seen"]).to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("in", [("a", "one", 0), ("a", "one", 1)])
    >>> driver.read_all("out")
    [Record('a', 'one', timestamp=0)]
    """

    def __init__(
        self, task: Task, node: str, stores: list[str], forward: Callable[[Record, str | None], None]
    ) -> None:
        self._task = task
        self._node = node
        self._stores = stores
        self._forward = forward

    def forward(self, record: Record[K, V], child: str | None = None) -> None:
        """Passes a record on to all operators that follow, or to the one with a name.

        >>> class Twice(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record)
        ...         self.context.forward(record)
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").process(Twice).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> len(driver.read_all("out"))
        2
        """
        self._forward(record, child)

    def store(self, name: str) -> Unknown:
        """A state store that `process(stores=[...])` names; `add_state_store` makes a `KeyValueStore`.

        >>> class Last(Processor):
        ...     def process(self, record):
        ...         self.context.store("last").put(record.key, record.value)
        >>> builder = StreamsBuilder().add_state_store("last")
        >>> _ = builder.stream("in").process(Last, stores=["last"])
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello", key="a")
        >>> driver.store("last").get("a")
        'hello'
        """
        if name not in self._stores:
            raise TopologyError(
                f"{self._node} uses the state store {name}: name it in process(stores=[{name!r}])"
            )
        return self._task.stores[name]

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        """Calls back with the time, every `interval`, by the times of records or by the machine's clock.

        >>> class Hourly(Processor):
        ...     def init(self, context):
        ...         context.schedule(3_600_000, PunctuationType.STREAM_TIME, lambda time: print("at", time))
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Hourly)
        >>> TopologyTestDriver(builder).pipe_input("in", "x", timestamp=7_200_000)
        at 7200000
        """
        return self._task.schedule(to_ms(interval), kind, callback)

    @property
    def stream_time_ms(self) -> int:
        """The latest time of all records that the task has read.

        >>> class Show(Processor):
        ...     def process(self, record):
        ...         print(self.context.stream_time_ms)
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Show)
        >>> TopologyTestDriver(builder).pipe_input("in", "x", timestamp=5)
        5
        """
        return self._task.stream_time

    @property
    def system_time_ms(self) -> int:
        """The machine's clock; in a `TopologyTestDriver` its own clock.

        >>> class Show(Processor):
        ...     def process(self, record):
        ...         print(self.context.system_time_ms)
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Show)
        >>> TopologyTestDriver(builder, start_ms=1_000).pipe_input("in", "x", timestamp=5)
        1000
        """
        return self._task.now_ms()

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The place of the current record; None in a timer.

        >>> class Show(Processor):
        ...     def process(self, record):
        ...         print(self.context.record_metadata.topic)
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Show)
        >>> TopologyTestDriver(builder).pipe_input("in", "x")
        in
        """
        return self._task.metadata
