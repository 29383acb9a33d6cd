"""Kafka sources for PySpark's DStream API, which Spark itself no longer has.

Direct: in each batch interval the driver chooses a range of offsets per partition, and tasks read the ranges
(`dstream_direct.py`). With receivers: tasks that live long store what they receive (`dstream_receiver.py`). Both
continue from a checkpoint (`StreamingContext.getOrCreate`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.pipeline.dstream_context import Settings, checked_for_checkpoint, resolved, ticks, time_ms
from ottla.pipeline.dstream_direct import RESPONSE_TIMEOUT_S, DirectSource, OffsetRange, TopicAndPartition
from ottla.pipeline.dstream_receiver import ReceiverSource
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import java_streaming, system_properties
from ottla.pipeline.session import prepare_process
from ottla.pipeline.sink import KafkaSink

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD, SparkContext
    from pyspark.streaming import DStream, StreamingContext

__all__ = [
    "KafkaMessageAndMetadata",
    "KafkaUtils",
    "OffsetRange",
    "TopicAndPartition",
    "streaming_context",
    "utf8_decoder",
    "write_exactly_once",
]

_POLL_S: Final = 0.5
_MAX_MESSAGES: Final = 10_000
K = TypeVar("K")
V = TypeVar("V")
Decoder: TypeAlias = Callable[[bytes | None], V]
KafkaParams: TypeAlias = Mapping[str, str | int | float | bool]

_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}


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


def streaming_context(
    checkpoint: str, setup: Callable[[], StreamingContext], master: str | None = None
) -> StreamingContext:
    """The context of a checkpoint, or a new one that `setup` makes: `StreamingContext.getOrCreate`.

    It finds Java and Python as `spark_session` does, also where the context comes from the checkpoint and no session
    was made before. Such a context runs on `master`, else on `SPARK_MASTER`, else on the master of the checkpoint::

        def setup():
            ssc = StreamingContext(spark_session("counts").sparkContext, 1)
            lines = KafkaUtils.createDirectStream(ssc, ["lines"], {"bootstrap.servers": "localhost:9092"})
            lines.count().pprint()
            return ssc

        ssc = streaming_context("checkpoint", setup)
        ssc.start()
        ssc.awaitTermination()
    """
    from pyspark.streaming import StreamingContext

    master = master or os.environ.get("SPARK_MASTER")
    prepare_process(master or "local[*]")
    system = system_properties()
    default = system.getProperty(_MASTER)

    def use(chosen: object) -> None:
        if chosen is None:
            system.clearProperty(_MASTER)
        else:
            system.setProperty(_MASTER, chosen)

    def fresh() -> StreamingContext:
        use(default)
        return setup()

    # Spark puts its own default, this process, over the master of a checkpoint.
    use(master)
    try:
        return StreamingContext.getOrCreate(checkpoint, fresh)
    finally:
        use(default)


def write_exactly_once(
    stream: DStream[tuple[str | bytes | None, str | bytes | None]],
    bootstrap_servers: str,
    *,
    topic: str,
    transactional_id: str,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write each batch of (key, value) to a topic as one transaction, once, also if the driver runs it again.

    The stream comes from `createDirectStream` or `createStream` with a checkpoint directory, which makes a batch that
    runs again the same batch. Offsets of a direct stream's own RDDs are committed in the same transaction, to the
    group of the transactional id.
    """
    checked_for_checkpoint(dict(options or {}))
    settings = (bootstrap_servers, topic, transactional_id, tuple(sorted((options or {}).items())))
    stream.foreachRDD(lambda time, rdd: _write_batch(settings, time, rdd))


_MASTER: Final = "spark.master"
_Target: TypeAlias = tuple[str, str, str, tuple[tuple[str, str], ...]]
_sinks: Final[dict[_Target, KafkaSink]] = {}
"""The sinks of this process; a checkpoint holds their settings only."""


def _write_batch(target: _Target, time: datetime, rdd: RDD[tuple[object, object]]) -> None:
    from pyspark.sql import SparkSession

    bootstrap_servers, topic, transactional_id, options = target
    sink = _sinks.get(target)
    if sink is None:
        sink = _sinks[target] = KafkaSink(
            bootstrap_servers,
            topic=topic,
            transactional_id=transactional_id,
            options={key: str(value) for key, value in resolved(dict(options)).items()},
        )
    ranges: list[OffsetRange] = rdd.offsetRanges() if hasattr(rdd, "offsetRanges") else []
    offsets: dict[str, dict[int, int]] = {}
    for one in ranges:
        offsets.setdefault(one.topic, {})[one.partition] = one.untilOffset
    session = SparkSession.builder.getOrCreate()
    frame = session.createDataFrame(rdd.map(_as_bytes), "key binary, value binary")
    sink.write(frame, time_ms(time), lineage=transactional_id, offsets=offsets)


def _as_bytes(pair: tuple[object, object]) -> tuple[bytes | None, bytes | None]:
    key, value = (one.encode() if isinstance(one, str) else cast("bytes | None", one) for one in pair)
    return key, value


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
        where `auto.offset.reset` says. With a checkpoint directory it continues after a restart of the driver where
        it was. `spark.streaming.kafka.maxRatePerPartition` and `spark.streaming.backpressure.enabled` bound a batch.
        """
        params = _consumer_settings(kafkaParams)
        source = DirectSource(
            list(topics),
            params,
            {TopicAndPartition(*place): offset for place, offset in (fromOffsets or {}).items()},
            _reader(params, keyDecoder, valueDecoder, messageHandler),
            int(java_streaming(ssc).graph().batchDuration().milliseconds()) / 1000,
            ssc,
        )
        return _direct_stream(ssc, source)

    @staticmethod
    def createStream(  # noqa: N802
        ssc: StreamingContext,
        zkQuorum: str,  # noqa: N803
        groupId: str,  # noqa: N803
        topics: Mapping[str, int],
        kafkaParams: KafkaParams | None = None,  # noqa: N803
        keyDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
        valueDecoder: Decoder[object] = utf8_decoder,  # noqa: N803
    ) -> DStream[object]:
        """A stream of (key, value) by receivers: tasks on executors that store records and then commit their offsets.

        `topics` has the number of receivers of each topic; each takes one slot of the cluster. What they receive is
        in the checkpoint directory until it is processed, so it survives executors and the driver. `zkQuorum` takes
        the brokers' addresses, since Kafka 4 has no ZooKeeper; `bootstrap.servers` in `kafkaParams` comes first.
        """
        given = dict(kafkaParams or {})
        given.setdefault("bootstrap.servers", given.pop("metadata.broker.list", zkQuorum))
        params = _consumer_settings({**given, "group.id": groupId})
        source = ReceiverSource(dict(topics), params, (keyDecoder, valueDecoder), ssc=ssc)
        return ticks(ssc).transform(lambda time, tick: source.batch(time, tick))

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
        consumer = Consumer(resolved(_consumer_settings(kafkaParams)))
        try:
            ends = [TopicPartition(one.topic, one.partition, one.untilOffset) for one in offsetRanges]
            if ends:
                consumer.commit(offsets=ends, asynchronous=False)
        finally:
            consumer.close()


def _direct_stream(ssc: StreamingContext, source: DirectSource) -> DStream[object]:
    """The stream of a source. RDDs have `offsetRanges` in its own `transform` and `foreachRDD`."""
    stream: DStream[object] = ticks(ssc).transform(lambda time, tick: source.batch(time, tick))
    for_each = stream.foreachRDD

    def foreach_rdd(func: Callable[..., None]) -> None:
        takes_time = func.__code__.co_argcount > 1

        def with_ranges(time: datetime, rdd: RDD[object]) -> None:
            found = source.with_ranges(time, rdd)
            func(time, found) if takes_time else func(found)

        for_each(with_ranges)

    stream.foreachRDD = foreach_rdd  # type: ignore[method-assign]
    return stream


def _consumer_settings(params: KafkaParams) -> Settings:
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


def _reader(
    settings: Settings,
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


def _messages(settings: Settings, wanted: OffsetRange) -> Iterator[Message]:
    consumer = Consumer(resolved(settings))
    at = wanted.fromOffset
    waited_s = 0.0
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, at)])
        while at < wanted.untilOffset:
            messages: list[Message] = consumer.consume(min(_MAX_MESSAGES, wanted.untilOffset - at), _POLL_S)
            waited_s = 0.0 if messages else waited_s + _POLL_S
            if waited_s > RESPONSE_TIMEOUT_S:
                raise PipelineError(
                    f"{wanted.topic}-{wanted.partition} gave nothing from offset {at} on for {RESPONSE_TIMEOUT_S:g} s"
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
