"""Programs of the DStream API with our Kafka source."""

from __future__ import annotations

import queue
from collections import Counter
from typing import Any

import pytest

from ottla.pipeline.failures import PipelineError

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning"),
]


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
    assert ottla_kafka.committed(group, topic) == ottla_kafka.ends(topic)


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
