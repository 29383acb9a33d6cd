"""A direct Kafka source for PySpark's DStream API, which Spark itself no longer has.

In each batch interval the driver chooses a range of offsets per partition; a task reads each range from its broker.
The stream keeps the offsets, not a receiver: the range of a batch is known before it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import java_streaming

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import DStream, StreamingContext

_RESPONSE_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.5
_MAX_MESSAGES: Final = 10_000
_KEPT_BATCHES: Final = 64
_RATE_SETTING: Final = "spark.streaming.kafka.maxRatePerPartition"
K = TypeVar("K")
V = TypeVar("V")
Decoder: TypeAlias = Callable[[bytes | None], V]
KafkaParams: TypeAlias = Mapping[str, str | int | float | bool]
ConsumerSettings: TypeAlias = dict[str, str | int | float | bool]

_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}


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


class KafkaMessageAndMetadata(NamedTuple, Generic[K, V]):
    """The record that a `messageHandler` receives; key and value are decoded."""

    topic: str
    partition: int
    offset: int
    key: K
    message: V
    timestamp: int


def utf8_decoder(data: bytes | None) -> str | None:
    """Text of bytes; the default for keys and values."""
    return None if data is None else data.decode("utf-8")


class KafkaUtils:
    """The name that older programs use for the source."""

    @staticmethod
    def createDirectStream(  # noqa: N802
        ssc: StreamingContext,
        topics: Sequence[str],
        kafkaParams: KafkaParams,  # noqa: N803
        fromOffsets: Mapping[TopicAndPartition, int] | None = None,  # noqa: N803
        keyDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
        messageHandler: Callable[[KafkaMessageAndMetadata[object, object]], object] | None = None,  # noqa: N803
    ) -> DStream[object]:
        """A stream of (key, value), or of the results of `messageHandler`.

        Its RDDs have `offsetRanges()`. It starts at `fromOffsets`, else at the group's committed offsets, else
        where `auto.offset.reset` says; `spark.streaming.kafka.maxRatePerPartition` bounds a batch.
        """
        params = _consumer_settings(kafkaParams)
        seconds = java_streaming(ssc).graph().batchDuration().milliseconds() / 1000
        rate = int(ssc.sparkContext.getConf().get(_RATE_SETTING) or 0)
        most = int(rate * seconds) if rate > 0 else None
        source = _DirectSource(list(topics), params, dict(fromOffsets or {}), most)
        read = _reader(params, keyDecoder, valueDecoder, messageHandler)
        ticks = ssc.queueStream([], default=ssc.sparkContext.emptyRDD())

        def batch(time: datetime, _: RDD[object]) -> RDD[object]:
            ranges = source.ranges_of(time)
            context = ssc.sparkContext
            rdd = context.parallelize(ranges, max(1, len(ranges))).mapPartitions(read)
            rdd.offsetRanges = lambda: ranges  # type: ignore[attr-defined]
            return rdd

        return ticks.transform(batch)

    @staticmethod
    def createRDD(  # noqa: N802
        sc: SparkContext,
        kafkaParams: KafkaParams,  # noqa: N803
        offsetRanges: Sequence[OffsetRange],  # noqa: N803
        keyDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
        messageHandler: Callable[[KafkaMessageAndMetadata[object, object]], object] | None = None,  # noqa: N803
    ) -> RDD[object]:
        """An RDD of given ranges of offsets."""
        read = _reader(_consumer_settings(kafkaParams), keyDecoder, valueDecoder, messageHandler)
        rdd: RDD[object] = sc.parallelize(list(offsetRanges), max(1, len(offsetRanges))).mapPartitions(read)
        return rdd

    @staticmethod
    def commitOffsets(kafkaParams: KafkaParams, offsetRanges: Iterable[OffsetRange]) -> None:  # noqa: N802, N803
        """Commits the ends of ranges to the params' `group.id`; call it when a batch's output is written."""
        consumer = Consumer(_consumer_settings(kafkaParams))
        try:
            ends = [TopicPartition(one.topic, one.partition, one.untilOffset) for one in offsetRanges]
            if ends:
                consumer.commit(offsets=ends, asynchronous=False)
        finally:
            consumer.close()


def _consumer_settings(params: KafkaParams) -> ConsumerSettings:
    """The settings of a consumer with assigned partitions; the names of older versions are understood."""
    given = dict(params)
    servers = given.pop("metadata.broker.list", None) or given.get("bootstrap.servers")
    if not servers:
        raise PipelineError("kafkaParams needs `bootstrap.servers` (or the older `metadata.broker.list`)")
    reset = str(given.get("auto.offset.reset", "latest"))
    return {
        "group.id": "ottla-dstream",
        **{key: value for key, value in given.items() if not key.endswith("deserializer")},
        "bootstrap.servers": servers,
        "auto.offset.reset": _OLD_RESETS.get(reset, reset),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }


class _DirectSource:
    """The driver's side: how far each partition is read, and the ranges of each batch."""

    def __init__(
        self,
        topics: list[str],
        settings: ConsumerSettings,
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
        """A consumer for some requests; none is kept, as the source does not learn when the stream stops."""
        consumer = Consumer(self._settings)
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(self, consumer: Consumer) -> list[TopicAndPartition]:
        known = consumer.list_topics(timeout=_RESPONSE_TIMEOUT_S).topics
        missing = [topic for topic in self._topics if topic not in known or known[topic].error is not None]
        if missing:
            raise PipelineError(
                f"there is no topic {', '.join(missing)} at {self._settings['bootstrap.servers']}"
            )
        return [TopicAndPartition(topic, one) for topic in self._topics for one in known[topic].partitions]

    def _first(self, consumer: Consumer, place: TopicAndPartition, *, fresh: bool) -> int:
        """The first offset to read; a partition that appears while the stream runs is read from its start."""
        if not fresh and "group.id" in self._settings:
            committed = consumer.committed([TopicPartition(*place)], timeout=_RESPONSE_TIMEOUT_S)[0].offset
            if committed >= 0:
                return int(committed)
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_RESPONSE_TIMEOUT_S)
        return int(low if fresh or self._settings["auto.offset.reset"] == "earliest" else high)

    def ranges_of(self, time: datetime) -> list[OffsetRange]:
        """The ranges of the batch of a time; a second call (two outputs of one stream) returns the same."""
        with self._lock:
            if time not in self._by_time:
                self._by_time[time] = self._new_ranges()
            while len(self._by_time) > _KEPT_BATCHES:
                self._by_time.pop(next(iter(self._by_time)))
            return self._by_time[time]

    def _new_ranges(self) -> list[OffsetRange]:
        with self._asking() as consumer:
            ranges = []
            for place in self._partitions(consumer):
                if place not in self._next:
                    self._next[place] = self._first(consumer, place, fresh=True)
                _, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_RESPONSE_TIMEOUT_S)
                start = self._next[place]
                if self._most is not None:
                    end = min(end, start + self._most)
                if end > start:
                    ranges.append(OffsetRange(place.topic, place.partition, start, end))
                    self._next[place] = end
            return ranges


def _reader(
    settings: ConsumerSettings,
    key_decoder: Decoder[object],
    value_decoder: Decoder[object],
    handler: Callable[[KafkaMessageAndMetadata[object, object]], object] | None,
) -> Callable[[Iterable[OffsetRange]], Iterator[object]]:
    """The function that a task reads its ranges with."""

    def read(ranges: Iterable[OffsetRange]) -> Iterator[object]:
        for one in ranges:
            for message in _messages(settings, OffsetRange(*one)):
                key, value = key_decoder(message.key()), value_decoder(message.value())
                if handler is None:
                    yield key, value
                else:
                    place = message.topic(), message.partition(), message.offset()
                    topic, partition, offset = cast("tuple[str, int, int]", place)
                    time = message.timestamp()[1]
                    yield handler(KafkaMessageAndMetadata(topic, partition, offset, key, value, time))

    return read


def _messages(settings: ConsumerSettings, wanted: OffsetRange) -> Iterator[Message]:
    consumer = Consumer(settings)
    at = wanted.fromOffset
    waited_s = 0.0
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, at)])
        while at < wanted.untilOffset:
            messages: list[Message] = consumer.consume(min(_MAX_MESSAGES, wanted.untilOffset - at), _POLL_S)
            waited_s = 0.0 if messages else waited_s + _POLL_S
            if waited_s > _RESPONSE_TIMEOUT_S:
                raise PipelineError(
                    f"{wanted.topic}-{wanted.partition} gave nothing from offset {at} on for {_RESPONSE_TIMEOUT_S:g} s"
                )
            for message in messages:
                error = message.error()
                if error is not None:
                    # The end of the partition: the rest of the range is transaction markers.
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    raise KafkaException(error)
                at = cast("int", message.offset()) + 1
                if at > wanted.untilOffset:
                    return
                yield message
    finally:
        consumer.close()
