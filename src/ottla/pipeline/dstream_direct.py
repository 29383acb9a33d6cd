"""The direct source of DStreams, on the driver: how far each partition is read, and the ranges of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, TopicPartition

from ottla.pipeline.dstream_context import Settings, read_with, resolved, time_ms
from ottla.pipeline.dstream_rates import BatchRate
from ottla.pipeline.dstream_source import BatchSource
from ottla.pipeline.failures import PipelineError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.jvm import JavaObject

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


def _offset_ranges(batch: _Batch) -> list[OffsetRange]:
    return [OffsetRange(*one) for one in batch.ranges]


def _with_ranges(rdd: RDD[object], ranges: list[OffsetRange]) -> RDD[object]:
    rdd.offsetRanges = lambda: ranges  # type: ignore[attr-defined]
    return rdd


class DirectSource(BatchSource[_Batch]):
    """Chooses the ranges of each batch, from where the batch before it ended."""

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
        super().__init__(_Batch, settings, ssc, directory)
        self._topics = topics
        self._start = dict(start)
        self._read = read
        self._interval_s = interval_s
        self._rate = BatchRate(interval_s)
        if ssc is not None:
            with self._asking() as consumer:
                for place in self._partitions(consumer):
                    if place not in self._start:
                        self._start[place] = self._first(consumer, place, fresh=False)

    def state(self) -> Mapping[str, object]:
        """What a checkpoint holds. The ranges of batches are in a log of their own."""
        return {
            **super().state(),
            "topics": self._topics,
            "start": self._start,
            "read": self._read,
            "interval_s": self._interval_s,
        }

    def _attach(self, context: SparkContext, running: JavaObject) -> None:
        self._rate.attach(context, running)

    def _rdd(self, batch: _Batch, tick: RDD[object]) -> RDD[object]:
        ranges = _offset_ranges(batch)
        return _with_ranges(read_with(tick, ranges, self._read), ranges)

    def with_ranges(self, at: datetime, rdd: RDD[object]) -> RDD[object]:
        """The RDD of a batch that came back from the JVM, with its `offsetRanges` again."""
        with self._lock:
            batch = self._opened_log().get(time_ms(at))
        assert batch is not None
        return _with_ranges(rdd, _offset_ranges(batch))

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

    def _new_batch(self, at_ms: int, context: SparkContext, newest: _Batch | None) -> _Batch:
        at = dict(self._start)
        if newest is not None:
            at |= {TopicAndPartition(topic, partition): offset for topic, partition, offset in newest.next}
        ends: dict[TopicAndPartition, int] = {}
        with self._asking() as consumer:
            for place in self._partitions(consumer):
                if place not in at:
                    at[place] = self._first(consumer, place, fresh=True)
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=RESPONSE_TIMEOUT_S)
                ends[place] = max(end, at[place])
        limits = self._rate.limits(context, {place: end - at[place] for place, end in ends.items()})
        ranges = []
        for place, end in ends.items():
            until = min(end, at[place] + limits[place])
            if until > at[place]:
                ranges.append((place.topic, place.partition, at[place], until))
                at[place] = until
        self._rate.planned(at_ms, sum(until - start for _, _, start, until in ranges))
        return _Batch(ranges, [(*place, offset) for place, offset in at.items()])
