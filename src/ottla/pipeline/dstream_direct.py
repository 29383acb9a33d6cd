"""The direct source of DStreams, on the driver: how far each partition is read, and the ranges of each batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec
from confluent_kafka import Consumer, TopicPartition

from ottla.pipeline.batch_log import BatchLog
from ottla.pipeline.dstream_context import (
    Restorable,
    Settings,
    checked_for_checkpoint,
    read_with,
    remembered_ms,
    resolved,
    running_context,
    time_ms,
)
from ottla.pipeline.dstream_rates import BatchRate
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import java_streaming

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import StreamingContext

RESPONSE_TIMEOUT_S: Final = 30.0


class TopicAndPartition(NamedTuple):
    """A partition, as the key of `fromOffsets`."""

    topic: str
    partition: int


class OffsetRange(NamedTuple):
    """The records of a partition that a batch reads: from one offset up to another, which is not included."""

    topic: str
    partition: int
    fromOffset: int  # noqa: N815
    untilOffset: int  # noqa: N815

    def count(self) -> int:  # type: ignore[override]
        """The number of offsets."""
        return self.untilOffset - self.fromOffset


Read = Callable[[Iterable[OffsetRange]], Iterator[object]]


class _Batch(msgspec.Struct, frozen=True):
    """What one batch reads, and where all partitions stand after it."""

    ranges: list[tuple[str, int, int, int]]
    next: list[tuple[str, int, int]]

    def offset_ranges(self) -> list[OffsetRange]:
        return [OffsetRange(*one) for one in self.ranges]


class DirectSource(Restorable):
    """Chooses the ranges of each batch. A batch that Spark computes again, also after a restart, has its old ranges."""

    def __init__(
        self,
        topics: list[str],
        settings: Settings,
        start: Mapping[TopicAndPartition, int],
        read: Read,
        interval_s: float,
        ssc: StreamingContext | None = None,
        directory: str | None = None,
    ) -> None:
        super().__init__()
        self._topics = topics
        self._settings = settings
        self._start = dict(start)
        self._read = read
        self._interval_s = interval_s
        self._ssc = ssc
        self._directory = directory
        self._next: dict[TopicAndPartition, int] = {}
        self._log: BatchLog[_Batch] | None = None
        self._rate = BatchRate(interval_s)
        self._lock = threading.Lock()
        if ssc is not None:
            with self._asking() as consumer:
                for place in self._partitions(consumer):
                    if place not in self._start:
                        self._start[place] = self._first(consumer, place, fresh=False)

    # -- checkpoints

    def state(self) -> Mapping[str, object]:
        """What a checkpoint holds. The ranges of batches are in a log of their own."""
        return {
            "topics": self._topics,
            "settings": checked_for_checkpoint(self._settings),
            "start": [(*place, offset) for place, offset in self._start.items()],
            "read": self._read,
            "interval_s": self._interval_s,
            "directory": self._directory or self._log_directory(),
        }

    @classmethod
    def restored(cls, **state: object) -> DirectSource:
        """The source of a checkpoint; it continues after the last batch of its log."""
        start = cast("list[tuple[str, int, int]]", state["start"])
        return cls(
            cast("list[str]", state["topics"]),
            cast("Settings", state["settings"]),
            {TopicAndPartition(topic, partition): offset for topic, partition, offset in start},
            cast("Read", state["read"]),
            cast("float", state["interval_s"]),
            directory=cast("str | None", state["directory"]),
        )

    def _log_directory(self) -> str | None:
        checkpoints = None if self._ssc is None else java_streaming(self._ssc).checkpointDir()
        return None if checkpoints is None else f"{checkpoints}/ottla-direct-{self.identity}"

    def _opened_log(self) -> BatchLog[_Batch]:
        if self._log is None:
            self._directory = self._directory or self._log_directory()
            self._log = BatchLog(_Batch, self._directory)
            newest = self._log.newest
            self._next = dict(self._start)
            if newest is not None:
                self._next |= {TopicAndPartition(t, p): offset for t, p, offset in newest.next}
        return self._log

    # -- batches

    def batch(self, time: datetime, tick: RDD[object]) -> RDD[object]:
        """The RDD of a batch. A second call (two outputs of one stream) reads the same ranges."""
        ranges = self._ranges_of(time_ms(time), tick.context)
        rdd = read_with(tick, ranges, self._read)
        rdd.offsetRanges = lambda: ranges  # type: ignore[attr-defined]
        return rdd

    def _ranges_of(self, at_ms: int, context: SparkContext) -> list[OffsetRange]:
        with self._lock:
            self.changed = True
            log = self._opened_log()
            found = log.get(at_ms)
            if found is None:
                found = self._new_batch(context)
                log.put(at_ms, found)
                self._rate.planned(at_ms, sum(end - start for _, _, start, end in found.ranges))
            running = running_context()
            if running is not None:
                log.forget(at_ms - 2 * remembered_ms(running))
                self._rate.attach(context, running)
            return found.offset_ranges()

    @contextmanager
    def _asking(self) -> Iterator[Consumer]:
        """A consumer for some requests; none is kept, as the source does not learn when the stream stops."""
        consumer = Consumer(resolved(self._settings))
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(self, consumer: Consumer) -> list[TopicAndPartition]:
        known = consumer.list_topics(timeout=RESPONSE_TIMEOUT_S).topics
        missing = [topic for topic in self._topics if topic not in known or known[topic].error is not None]
        if missing:
            raise PipelineError(
                f"there is no topic {', '.join(missing)} at {self._settings['bootstrap.servers']}"
            )
        return [TopicAndPartition(topic, one) for topic in self._topics for one in known[topic].partitions]

    def _first(self, consumer: Consumer, place: TopicAndPartition, *, fresh: bool) -> int:
        """The first offset to read; a partition that appears while the stream runs is read from its start."""
        if not fresh and "group.id" in self._settings:
            committed = consumer.committed([TopicPartition(*place)], timeout=RESPONSE_TIMEOUT_S)[0].offset
            if committed >= 0:
                return int(committed)
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=RESPONSE_TIMEOUT_S)
        return int(low if fresh or self._settings["auto.offset.reset"] == "earliest" else high)

    def _new_batch(self, context: SparkContext) -> _Batch:
        ends: dict[TopicAndPartition, int] = {}
        with self._asking() as consumer:
            for place in self._partitions(consumer):
                if place not in self._next:
                    self._next[place] = self._first(consumer, place, fresh=True)
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=RESPONSE_TIMEOUT_S)
                ends[place] = max(end, self._next[place])
        limits = self._rate.limits(context, {place: end - self._next[place] for place, end in ends.items()})
        ranges = []
        for place, end in ends.items():
            start = self._next[place]
            until = min(end, start + limits[place])
            if until > start:
                ranges.append((place.topic, place.partition, start, until))
                self._next[place] = until
        return _Batch(ranges, [(*place, offset) for place, offset in self._next.items()])
