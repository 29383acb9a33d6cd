"""A direct Kafka source for PySpark's DStream API, which Spark itself no longer has.

Each batch interval the driver decides on a range of offsets per partition; a task reads each range from its broker.
Offsets are kept by the stream, not by a receiver: what a batch reads is known before it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.pipeline.failures import PipelineError

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark import RDD
    from pyspark.streaming import DStream, StreamingContext

_ANSWER_S: Final = 30.0
_LOOK_S: Final = 0.5
_MOST_AT_ONCE: Final = 10_000
_REMEMBERED_BATCHES: Final = 64
_RATE_SETTING: Final = "spark.streaming.kafka.maxRatePerPartition"
_OLD_WORDS: Final = {"smallest": "earliest", "largest": "latest"}


class TopicAndPartition(NamedTuple):
    """A partition, as the key of `fromOffsets`."""

    topic: str
    partition: int


class OffsetRange(NamedTuple):
    """What a batch reads of a partition: from one offset up to another, without it."""

    topic: str
    partition: int
    fromOffset: int  # noqa: N815
    untilOffset: int  # noqa: N815

    def count(self) -> int:  # type: ignore[override]
        return self.untilOffset - self.fromOffset


class KafkaMessageAndMetadata(NamedTuple):
    """A record as a `messageHandler` gets it; key and value are decoded."""

    topic: str
    partition: int
    offset: int
    key: Any
    message: Any
    timestamp: int


def utf8_decoder(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8")


class KafkaUtils:
    """The old name, so that old programs run."""

    @staticmethod
    def createDirectStream(  # noqa: N802
        ssc: StreamingContext,
        topics: Sequence[str],
        kafkaParams: Mapping[str, Any],  # noqa: N803
        fromOffsets: Mapping[TopicAndPartition, int] | None = None,  # noqa: N803
        keyDecoder: Callable[[bytes | None], Any] = utf8_decoder,  # noqa: N803
        valueDecoder: Callable[[bytes | None], Any] = utf8_decoder,  # noqa: N803
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,  # noqa: N803
    ) -> DStream[Any]:
        """A stream of (key, value), or of what `messageHandler` makes of a record.

        Its RDDs tell `offsetRanges()`. It starts at `fromOffsets`, else at the group's committed offsets, else
        where `auto.offset.reset` says; `spark.streaming.kafka.maxRatePerPartition` bounds a batch.
        """
        params = _consumer_settings(kafkaParams)
        seconds = ssc._jssc.ssc().graph().batchDuration().milliseconds() / 1000
        rate = int(ssc.sparkContext.getConf().get(_RATE_SETTING) or 0)
        most = int(rate * seconds) if rate > 0 else None
        source = _DirectSource(list(topics), params, dict(fromOffsets or {}), most)
        read = _reader(params, keyDecoder, valueDecoder, messageHandler)
        ticks = ssc.queueStream([], default=ssc.sparkContext.emptyRDD())

        def batch(time: datetime, _: RDD[Any]) -> RDD[Any]:
            ranges = source.ranges_of(time)
            context = ssc.sparkContext
            rdd = context.parallelize(ranges, max(1, len(ranges))).mapPartitions(read)
            rdd.offsetRanges = lambda: ranges  # type: ignore[attr-defined]
            return rdd

        return ticks.transform(batch)

    @staticmethod
    def createRDD(  # noqa: N802
        sc: Any,
        kafkaParams: Mapping[str, Any],  # noqa: N803
        offsetRanges: Sequence[OffsetRange],  # noqa: N803
        keyDecoder: Callable[[bytes | None], Any] = utf8_decoder,  # noqa: N803
        valueDecoder: Callable[[bytes | None], Any] = utf8_decoder,  # noqa: N803
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,  # noqa: N803
    ) -> RDD[Any]:
        """An RDD of given ranges of offsets."""
        read = _reader(_consumer_settings(kafkaParams), keyDecoder, valueDecoder, messageHandler)
        rdd: RDD[Any] = sc.parallelize(list(offsetRanges), max(1, len(offsetRanges))).mapPartitions(read)
        return rdd

    @staticmethod
    def commitOffsets(kafkaParams: Mapping[str, Any], offsetRanges: Iterable[OffsetRange]) -> None:  # noqa: N802, N803
        """Commit the ends of ranges to the params' `group.id`: call it when a batch's output is written."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(_consumer_settings(kafkaParams))
        try:
            ends = [TopicPartition(one.topic, one.partition, one.untilOffset) for one in offsetRanges]
            if ends:
                consumer.commit(offsets=ends, asynchronous=False)
        finally:
            consumer.close()


def _consumer_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's settings for a consumer that is told what to read; the words of older versions are understood."""
    given = dict(params)
    servers = given.pop("metadata.broker.list", None) or given.get("bootstrap.servers")
    if not servers:
        raise PipelineError("kafkaParams needs `bootstrap.servers` (or the older `metadata.broker.list`)")
    reset = str(given.get("auto.offset.reset", "latest"))
    return {
        "group.id": "ottla-dstream",
        **{key: value for key, value in given.items() if not key.endswith("deserializer")},
        "bootstrap.servers": servers,
        "auto.offset.reset": _OLD_WORDS.get(reset, reset),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }


class _DirectSource:
    """The driver's side: how far each partition is read, and what each batch reads of it."""

    def __init__(
        self,
        topics: list[str],
        settings: dict[str, Any],
        start: dict[TopicAndPartition, int],
        most: int | None,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._most = most
        self._next: dict[TopicAndPartition, int] = {TopicAndPartition(*at): start[at] for at in start}
        self._by_time: dict[datetime, list[OffsetRange]] = {}
        self._lock = threading.Lock()
        with self._asking() as consumer:
            for place in self._partitions(consumer):
                if place not in self._next:
                    self._next[place] = self._first(consumer, place, fresh=False)

    @contextmanager
    def _asking(self) -> Iterator[Consumer]:
        """A consumer to ask with; nothing tells us when the stream is stopped, so none is kept."""
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(self, consumer: Consumer) -> list[TopicAndPartition]:
        known = consumer.list_topics(timeout=_ANSWER_S).topics
        missing = [topic for topic in self._topics if topic not in known or known[topic].error is not None]
        if missing:
            raise PipelineError(
                f"there is no topic {', '.join(missing)} at {self._settings['bootstrap.servers']}"
            )
        return [TopicAndPartition(topic, one) for topic in self._topics for one in known[topic].partitions]

    def _first(self, consumer: Consumer, place: TopicAndPartition, *, fresh: bool) -> int:
        """Where to begin with a partition; one that appears while the stream runs is read from its start."""
        from confluent_kafka import TopicPartition

        if not fresh and "group.id" in self._settings:
            told = consumer.committed([TopicPartition(*place)], timeout=_ANSWER_S)[0].offset
            if told >= 0:
                return int(told)
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_ANSWER_S)
        return int(low if fresh or self._settings["auto.offset.reset"] == "earliest" else high)

    def ranges_of(self, time: datetime) -> list[OffsetRange]:
        """What the batch of this time reads. Asked twice (two outputs of one stream) it says the same."""
        with self._lock:
            if time not in self._by_time:
                self._by_time[time] = self._new_ranges()
            while len(self._by_time) > _REMEMBERED_BATCHES:
                self._by_time.pop(next(iter(self._by_time)))
            return self._by_time[time]

    def _new_ranges(self) -> list[OffsetRange]:
        from confluent_kafka import TopicPartition

        with self._asking() as consumer:
            ranges = []
            for place in self._partitions(consumer):
                if place not in self._next:
                    self._next[place] = self._first(consumer, place, fresh=True)
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_ANSWER_S)
                start = self._next[place]
                if self._most is not None:
                    end = min(end, start + self._most)
                if end > start:
                    ranges.append(OffsetRange(place.topic, place.partition, start, end))
                    self._next[place] = end
            return ranges


def _reader(
    settings: dict[str, Any],
    key_decoder: Callable[[bytes | None], Any],
    value_decoder: Callable[[bytes | None], Any],
    handler: Callable[[KafkaMessageAndMetadata], Any] | None,
) -> Callable[[Iterable[OffsetRange]], Iterator[Any]]:
    """What a task does with its ranges."""

    def read(ranges: Iterable[OffsetRange]) -> Iterator[Any]:
        for one in ranges:
            for message in _messages(settings, OffsetRange(*one)):
                key, value = key_decoder(message.key()), value_decoder(message.value())
                if handler is None:
                    yield key, value
                else:
                    yield handler(
                        KafkaMessageAndMetadata(
                            *(message.topic(), message.partition(), message.offset(), key, value),
                            message.timestamp()[1],
                        )
                    )

    return read


def _messages(settings: dict[str, Any], wanted: OffsetRange) -> Iterator[Any]:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(settings)
    at = wanted.fromOffset
    waited_s = 0.0
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, at)])
        while at < wanted.untilOffset:
            messages: list[Any] = consumer.consume(min(_MOST_AT_ONCE, wanted.untilOffset - at), _LOOK_S)
            waited_s = 0.0 if messages else waited_s + _LOOK_S
            if waited_s > _ANSWER_S:
                raise PipelineError(
                    f"{wanted.topic}-{wanted.partition} gave nothing from offset {at} on for {_ANSWER_S:g} s"
                )
            for message in messages:
                if message.error() is not None:
                    # The end of the partition: what is left of the range are marks of transactions.
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        return
                    raise KafkaException(message.error())
                at = message.offset() + 1
                if at > wanted.untilOffset:
                    return
                yield message
    finally:
        consumer.close()
