"""What a connector is: the interface between a connector and the worker that runs it.

The shape is that of Spark's Python Data Source API: a reader plans offsets on the driver and reads splits in tasks, a
writer writes in tasks and commits on the driver. Readers and writers are pickled into Spark's tasks, so they hold
plain settings and open connections when first used.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, Union

from ottla.connect.config.definitions import ConfigDef
from ottla.connect.data.java_text import to_json
from ottla.connect.data.record import SinkRecord, SourceRecord
from ottla.connect.failures import ConnectError
from ottla.json_types import Json, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ottla.connect.data.columns import RecordColumns
    from ottla.connect.run.context import RunContext
    from ottla.connect.run.runner import Run

Offsets = dict[str, JsonObject]
"""The offset of each source partition. The key is the partition as JSON (`partition_key`), as in the offsets topic."""

Split: TypeAlias = Any
"""A part of a cycle, as a reader cuts it for its own `read`; it can be pickled."""

Written: TypeAlias = Any
"""What a writer's `write` hands to its own `commit`; it can be pickled."""

Read = Union["SourceRecord", "pa.RecordBatch"]
"""What a reader gives: single records, or whole Arrow batches (`run/columns.py` says with which columns)."""


def partition_key(partition: Mapping[str, Json]) -> str:
    """The key of a source partition in `Offsets`, byte for byte as Kafka writes it.

    >>> partition_key({"table": "public.orders", "protocol": "1"})
    '{"protocol":"1","table":"public.orders"}'
    """
    return to_json(dict(partition))


def partition_of(key: str) -> JsonObject:
    """The source partition of a key."""
    found: JsonObject = json.loads(key)
    return found


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How much a cycle may read. A reader may go a little above, to end at a border of its own."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What `check` found at the other end: in order or not, and what to do."""

    good: bool
    text: str


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Connector(ABC):
    """A kind of connector. An instance belongs to one configuration, with providers' values filled in."""

    java_classes: ClassVar[tuple[str, ...]] = ()
    """Names of Java's connectors that this one replaces; their keys and offsets must be understood."""
    kind: ClassVar[str]
    version: ClassVar[str] = "4.3.1"
    extra: ClassVar[str | None] = None
    """The extra of pip that its libraries come with."""
    free_prefixes: ClassVar[tuple[str, ...]] = ()
    """Beginnings of keys that are handed on as they are: options of a library."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)
        self.values = {name: value.value for name, value in self.config_def().validate(self.config).items()}

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own keys."""

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Errors by key that only several keys together show. It must not touch the outside."""
        return {}

    def check(self) -> list[Finding]:
        """Looks at the other end: logins, tables, rights. For `ottla connect validate`."""
        return []

    def alters_offsets(self) -> bool:
        """Whether an offset that a user sets is all that says where the connector goes on.

        False says that the other end may hold a position of its own; the answer of REST then warns of it.
        """
        return True

    @property
    def task_class(self) -> str:
        """The name of Java's task class, which task configurations carry."""
        name = self.java_classes[0] if self.java_classes else type(self).__name__
        return name.removesuffix("Connector") + "Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The units of work that the status shows as tasks; at most `max_tasks`."""
        return [dict(self.config)]


class SourceReader(ABC):
    """Reads from the outside. All methods but `read` run on the driver, in one thread."""

    session: Callable[[], SparkSession] | None = None
    """Gives the Spark session. The run sets it, for a connector that needs the JVM."""

    def initial_offsets(self) -> Offsets:
        """Where to begin when no offset is stored."""
        return {}

    @abstractmethod
    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next cycle. Equal to `start` if there is nothing new. A plan is repeated after a failure."""

    @abstractmethod
    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[Split]:
        """What tasks read, together all of (start, end]; plain values that can be pickled."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[Read]:
        """The records of a split, in order. It runs in a task and gives the same records each time."""

    def size(self, start: Offsets, end: Offsets) -> int:
        """Bytes of a cycle, estimated: large cycles become Spark jobs."""
        return 0

    def describe(self) -> list[str]:
        """Looks at the source and says what would be read; ConnectError with what to do if it cannot be."""
        return []

    def commit(self, end: Offsets) -> None:
        """The records up to `end` are in Kafka: what holds them back at the source may go."""

    def lag(self, start: Offsets) -> str | None:
        """How far the source is ahead, in its own unit; None if that is not known."""
        return None

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """Waits until there may be something new; `stopping(timeout_s)` waits for the end of the connector."""
        stopping(timeout_s)

    def stop(self) -> None:
        """Closes connections."""


class FrameReader(SourceReader):
    """Reads with Spark itself: a cycle is a frame, whose rows become records in its tasks."""

    @abstractmethod
    def frame(self, split: Split) -> DataFrame:
        """The rows of the only split of a cycle."""

    @abstractmethod
    def as_records(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """A function from rows of the frame to a reader's batch, which is pickled into tasks."""

    def read(self, split: Split) -> Iterator[Read]:
        """The same on the driver, for cycles that are not jobs."""
        as_records = self.as_records()
        for rows in self.frame(split).toArrow().to_batches():
            yield as_records(rows)


class SourceConnector(Connector):
    """A connector that reads from the outside into topics."""

    kind = "source"
    exactly_once: ClassVar[bool] = True
    needs_jvm: ClassVar[bool] = False
    """Whether `read` needs Spark: then every cycle is a job."""

    @abstractmethod
    def reader(self) -> SourceReader:
        """A reader; the worker asks for one at each start."""

    def own_run(self, context: RunContext) -> Run | None:
        """A run of its own, for a source that does not read records in cycles; None for the usual one."""
        return None

    def check(self) -> list[Finding]:
        """What a reader finds at the source."""
        reader = self.reader()
        try:
            return [Finding(True, line) for line in reader.describe()]
        except ConnectError as error:
            return [Finding(False, str(error))]
        finally:
            reader.stop()

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """Checks an offset that a user sets over REST; raises ConnectError if it cannot be one."""


@dataclass(frozen=True, slots=True)
class Range:
    """Records of a partition: from `start` up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SinkCycle:
    """The ranges of a cycle. `number` only grows, but for rewinds, which give a new `lineage`.

    A cycle that is repeated after a crash has the same number and the same ranges.
    """

    connector: str
    lineage: int
    number: int
    ranges: tuple[Range, ...]


Refuse = Callable[[SinkRecord, Exception], None]
"""Reports a record that the target does not take. It raises, unless the connector tolerates errors."""


class SinkWriter(ABC):
    """Writes to the outside. `write` runs in tasks, everything else on the driver."""

    idempotent: ClassVar[bool] = False
    """Whether a second write of the same records does no harm, whatever the borders of the cycles are.

    If not, the ranges of a cycle are recorded before it is written, and repeated after a crash.
    """

    parallel: bool = False
    """Whether tasks may write the ranges of a cycle side by side, and a lost task's range once more.

    A second write of a range must then leave the same as the first, also while the first still runs.
    """

    session: Callable[[], SparkSession] | None = None
    """Gives the Spark session. The run sets it, for a connector that needs the JVM."""

    def positions(self, places: Iterable[Place], lineage: int) -> Mapping[Place, int]:
        """The next offsets that the target itself has recorded, if it keeps them with the data."""
        return {}

    @abstractmethod
    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> Written:
        """Writes the records of some ranges of a cycle; gives a message for `commit`, which can be pickled."""

    def write_columns(
        self, cycle: SinkCycle, found: Iterator[SinkRecord | RecordColumns], refuse: Refuse
    ) -> Written:
        """The same, for records of which some come side by side. A writer may take these as a whole."""
        return self.write(cycle, each_record(found), refuse)

    def write_range(
        self, cycle: SinkCycle, part: Range, found: Iterator[SinkRecord | RecordColumns], refuse: Refuse
    ) -> Written:
        """Writes one range of a cycle, in a task of a Spark job. A writer may do here what it needs to know it for."""
        return self.write_columns(cycle, found, refuse)

    def commit(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Makes a whole cycle visible. The group's offsets follow."""

    def abort(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Removes what a failed cycle left; `messages` are those that arrived."""

    def stop(self) -> None:
        """Closes connections."""


def each_record(found: Iterator[SinkRecord | RecordColumns]) -> Iterator[SinkRecord]:
    """All records one by one, in order."""
    for one in found:
        if isinstance(one, SinkRecord):
            yield one
        else:
            yield from one.records()


class SinkConnector(Connector):
    """A connector that writes records of topics to the outside."""

    kind = "sink"
    needs_jvm: ClassVar[bool] = False
    """Whether `commit` needs Spark."""

    @abstractmethod
    def writer(self) -> SinkWriter:
        """A writer; the worker asks for one at each start."""

    def check_offsets(self, offsets: Mapping[Place, int | None]) -> None:
        """Checks offsets that a user sets over REST; raises ConnectError if the sink cannot begin there."""
