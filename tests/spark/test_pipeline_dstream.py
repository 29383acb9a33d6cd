"""Programs of the DStream API with our Kafka source."""

from __future__ import annotations

import queue
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.failures import PipelineError

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning"),
]


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
