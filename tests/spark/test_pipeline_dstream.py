"""Programs of the DStream API with our Kafka source."""

from __future__ import annotations

import queue
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import batch_log, dstream_receiver
from ottla.pipeline.dstream_blocks import Block, BlockLog, BlockName
from ottla.pipeline.dstream_receiver import ReceiverSource
from ottla.pipeline.failures import PipelineError

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning"),
]


SLOW_S = 0.75
SEEN: defaultdict[str, set[tuple[Any, str]]] = defaultdict(set)
"""The records of each output, with the time of their batch. A checkpoint holds the functions below by name."""


def remember_batch(output: str, time: Any, rdd: Any) -> None:
    SEEN[output] |= {(time, value) for value in rdd.collect()}


RELEASED = threading.Event()


def collect_late(time: Any, rdd: Any) -> None:
    RELEASED.wait(120)
    remember_batch("late", time, rdd)


class Results:
    """A queue of this process, which a checkpoint does not hold."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()

    def put(self, result: Any) -> None:
        self._queue.put(result)

    def get(self, timeout: float) -> Any:
        return self._queue.get(timeout=timeout)

    def __reduce__(self) -> Any:
        return Results, ()


def assert_all_committed(kafka: Any, group: str, topic: str) -> None:
    """The group is at the end of each partition that has records: a producer may choose one for all of them."""
    committed = kafka.committed(group, topic)
    ends = {partition: end for partition, end in kafka.ends(topic).items() if end}
    assert {partition: committed[partition] for partition in ends} == ends


@pytest.fixture
def context(spark: Any) -> Any:
    from pyspark.streaming import StreamingContext

    streaming = StreamingContext(spark.sparkContext, 1)
    yield streaming
    streaming.stop(stopSparkContext=False, stopGraceFully=False)


def test_word_count_over_a_direct_stream(context: Any, ottla_kafka: Any, name: Any) -> None:
    from ottla.pipeline.dstream import KafkaUtils

    topic, group = ottla_kafka.make(name("lines"), 2), name("group")
    params = {
        "bootstrap.servers": ottla_kafka.bootstrap,
        "auto.offset.reset": "earliest",
        "group.id": group,
    }
    results: queue.Queue[list[tuple[str, int]]] = queue.Queue()
    lines = KafkaUtils.createDirectStream(context, [topic], params)
    ranges: list[Any] = []

    def remember(rdd: Any) -> Any:
        ranges.extend(rdd.offsetRanges())
        return rdd

    counts = (
        lines.transform(remember)
        .map(lambda record: record[1])
        .flatMap(lambda line: line.split(" "))
        .map(lambda word: (word, 1))
        .reduceByKey(lambda a, b: a + b)
    )
    counts.foreachRDD(lambda rdd: results.put(rdd.collect()))
    # A second output of the same stream reads the same records, not the next ones.
    again: queue.Queue[int] = queue.Queue()
    lines.foreachRDD(lambda rdd: again.put(rdd.count()))

    ottla_kafka.fill(topic, ((None, f"to be or not to be {n % 2}") for n in range(100)))
    context.start()
    total: Counter[str] = Counter()
    read_again = 0
    while sum(total.values()) < 700:
        total.update(dict(results.get(timeout=60)))
    while read_again < 100:
        read_again += again.get(timeout=60)
    assert total == Counter({"to": 200, "be": 200, "or": 100, "not": 100, "0": 50, "1": 50})
    assert read_again == 100
    assert sum(one.count() for one in ranges) == 100
    KafkaUtils.commitOffsets(params, ranges)
    assert_all_committed(ottla_kafka, group, topic)


def test_windows_with_an_inverse_function_over_a_checkpointed_stream(
    context: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    from ottla.pipeline.dstream import KafkaUtils

    topic = ottla_kafka.make(name("t"), 2)
    context.checkpoint(str(tmp_path / "checkpoint"))
    params = {"bootstrap.servers": ottla_kafka.bootstrap, "auto.offset.reset": "earliest"}
    words = KafkaUtils.createDirectStream(context, [topic], params).map(lambda record: (record[1], 1))
    windows = Results()
    counts = words.reduceByKeyAndWindow(lambda a, b: a + b, lambda a, b: a - b, 3, 1)
    counts.foreachRDD(lambda rdd: windows.put(dict(rdd.collect())))
    ottla_kafka.fill(topic, ((None, f"v{n % 2}") for n in range(60)))
    context.start()
    seen: list[dict[str, int]] = []
    full = {"v0": 30, "v1": 30}
    while full not in seen or seen[-1]:
        seen.append(windows.get(timeout=120))
    assert seen[-2] == full, "all records are in the windows of three batches, and then leave them"


@pytest.fixture
def backpressure(spark: Any) -> Any:
    """Spark's settings for contexts made in this test: 1,000 records a second at first, 100 at least."""
    settings = {"enabled": "true", "initialRate": "1000", "pid.minRate": "100"}
    conf = spark.sparkContext._conf
    for key, value in settings.items():
        conf.set(f"spark.streaming.backpressure.{key}", value)
    yield
    for key in settings:
        conf._jconf.remove(f"spark.streaming.backpressure.{key}")


def test_batches_get_smaller_when_the_output_is_slow(
    spark: Any, backpressure: None, ottla_kafka: Any, name: Any
) -> None:
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.dstream import KafkaUtils

    topic = ottla_kafka.make(name("t"), 2)
    for partition in range(2):
        ottla_kafka.fill(topic, ((None, str(n)) for n in range(10_000)), partition)
    context = StreamingContext(spark.sparkContext, 0.5)
    params = {"bootstrap.servers": ottla_kafka.bootstrap, "auto.offset.reset": "earliest"}
    sizes: queue.Queue[int] = queue.Queue()
    never = threading.Event()

    def write_slowly(rdd: Any) -> None:
        sizes.put(rdd.count())
        never.wait(SLOW_S)

    KafkaUtils.createDirectStream(context, [topic], params).foreachRDD(write_slowly)
    context.start()
    try:
        first = size = sizes.get(timeout=60)
        while size == first:
            size = sizes.get(timeout=60)
    finally:
        context.stop(stopSparkContext=False, stopGraceFully=False)
    # 1,000 a second for half a second; then at most what 500 records in SLOW_S are, and the least rate at least.
    assert first == 500
    assert 50 <= size <= 500 / SLOW_S * 0.5


def test_all_outputs_of_a_restored_stream_read_the_same_records(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.dstream import KafkaUtils, streaming_context

    topic = ottla_kafka.make(name("t"), 2)
    checkpoint = (tmp_path / "checkpoint").as_uri()
    params = {"bootstrap.servers": ottla_kafka.bootstrap, "auto.offset.reset": "earliest"}
    SEEN.clear()

    def setup() -> Any:
        ssc = StreamingContext(spark.sparkContext, 2)
        lines = KafkaUtils.createDirectStream(
            ssc, [topic], params, valueDecoder=lambda data: (data or b"").decode()
        )
        for output in ("one", "two"):
            values = lines.map(lambda record: record[1])
            values.foreachRDD(lambda time, rdd, output=output: remember_batch(output, time, rdd))
        return ssc

    for turn in range(2):
        ottla_kafka.fill(topic, ((None, f"{turn}-{n}") for n in range(50)))
        ssc = streaming_context(checkpoint, setup, "local[2]")
        ssc.start()
        while min(len(SEEN[output]) for output in ("one", "two")) < 50 * (turn + 1):
            ssc.awaitTerminationOrTimeout(0.1)
        ssc.stop(stopSparkContext=False, stopGraceFully=False)
    # A batch may run again after the restart, and is the same then.
    expected = sorted(f"{turn}-{n}" for turn in range(2) for n in range(50))
    assert sorted(value for _, value in SEEN["one"]) == expected
    assert SEEN["one"] == SEEN["two"], "each record in the same batch for both"


def test_a_receiver_stores_what_it_commits(context: Any, ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    from ottla.pipeline.dstream import KafkaUtils

    topic, group = ottla_kafka.make(name("t"), 2), name("group")
    ottla_kafka.fill(topic, ((str(n), str(n)) for n in range(100)))
    context.checkpoint(str(tmp_path / "checkpoint"))
    stream = KafkaUtils.createStream(
        context, ottla_kafka.bootstrap, group, {topic: 1}, {"auto.offset.reset": "earliest"}
    )
    results = Results()
    stream.foreachRDD(lambda rdd: results.put(rdd.collect()))
    context.start()
    got: list[Any] = []
    while len(got) < 100:
        got += results.get(timeout=120)
    assert sorted(got) == sorted((str(n), str(n)) for n in range(100))
    assert_all_committed(ottla_kafka, group, topic)


def test_a_batch_of_many_blocks_has_no_more_tasks_than_cores(spark: Any, tmp_path: Path) -> None:
    from ottla.pipeline.dstream import utf8_decoder

    log, places = BlockLog(str(tmp_path)), [BlockName("000.000", number, 0) for number in range(9)]
    for place in places:
        log.write(place, Block("t", {0: place.number}, [(None, b"%d" % place.number)]))
    source = ReceiverSource({"t": 1}, {}, (utf8_decoder, utf8_decoder), directory=str(tmp_path))
    batch = dstream_receiver._Batch([str(place) for place in places], {"000.000": 8})
    rdd = source._rdd(batch, spark.sparkContext.emptyRDD())
    assert rdd.getNumPartitions() == spark.sparkContext.defaultParallelism == 2
    assert rdd.collect() == [(None, str(number)) for number in range(9)]
    few = dstream_receiver._Batch([str(places[0])], {"000.000": 0})
    assert source._rdd(few, spark.sparkContext.emptyRDD()).getNumPartitions() == 1


def test_what_batches_in_the_queue_read_is_kept(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans batches while the output of an earlier one takes long."""
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.dstream import KafkaUtils

    monkeypatch.setattr(batch_log, "_LEAST_KEPT", 1)
    RELEASED.clear()
    topic, checkpoint = ottla_kafka.make(name("t"), 1), tmp_path / "checkpoint"
    context = StreamingContext(spark.sparkContext, 0.25)
    context.checkpoint(str(checkpoint))
    stream = KafkaUtils.createStream(
        context, ottla_kafka.bootstrap, name("group"), {topic: 1}, {"auto.offset.reset": "earliest"}
    )
    stream.foreachRDD(collect_late)

    def newest(pattern: str) -> int:
        """The greatest number in a file's name: of a receiver's block, or of a batch's time."""
        return max((int(file.name.split("-")[-2:][0]) for file in checkpoint.glob(pattern)), default=-1)

    def wait_for(pattern: str, number: int) -> None:
        while newest(pattern) < number:
            context.awaitTerminationOrTimeout(0.05)

    context.start()
    try:
        for turn in range(2):
            ottla_kafka.fill(topic, ((None, f"{turn}-{n}") for n in range(50)))
            wait_for("ottla-ReceiverSource-*/000.000-*", turn)
        wait_for("*-batches/[0-9]*", newest("*-batches/[0-9]*") + 3000)
        RELEASED.set()
        while len(SEEN["late"]) < 100:
            context.awaitTerminationOrTimeout(0.05)
    finally:
        RELEASED.set()
        context.stop(stopSparkContext=False, stopGraceFully=False)


def test_a_secret_is_kept_out_of_the_checkpoint(
    context: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    from ottla.pipeline.dstream import KafkaUtils

    context.checkpoint(str(tmp_path / "checkpoint"))
    params = {"bootstrap.servers": ottla_kafka.bootstrap, "sasl.password": "pa55word"}
    KafkaUtils.createDirectStream(context, [ottla_kafka.make(name("t"))], params).pprint()
    with pytest.raises(Exception, match=r"the checkpoint would hold sasl\.password"):
        context.start()


def test_ranges_as_an_rdd(spark: Any, ottla_kafka: Any, name: Any) -> None:
    from ottla.pipeline.dstream import KafkaUtils, OffsetRange

    topic = ottla_kafka.make(name("t"))
    ottla_kafka.fill(topic, ((str(n), str(n)) for n in range(50)))
    params = {"metadata.broker.list": ottla_kafka.bootstrap}
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 10, 20)])
    assert rdd.collect() == [(str(n), str(n)) for n in range(10, 20)]
    places = KafkaUtils.createRDD(
        *(spark.sparkContext, params, [OffsetRange(topic, 0, 10, 12)]),
        messageHandler=lambda record: (record.topic, record.offset, record.message),
    )
    assert places.collect() == [(topic, 10, "10"), (topic, 11, "11")]


def test_a_topic_that_is_not_there(context: Any, ottla_kafka: Any) -> None:
    from ottla.pipeline.dstream import KafkaUtils

    with pytest.raises(PipelineError, match="there is no topic nowhere"):
        KafkaUtils.createDirectStream(context, ["nowhere"], {"bootstrap.servers": ottla_kafka.bootstrap})
    with pytest.raises(PipelineError, match=r"bootstrap\.servers"):
        KafkaUtils.createDirectStream(context, ["nowhere"], {})
