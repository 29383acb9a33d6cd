"""format("ottla") beside Spark's own Kafka source: the same rows and options, as batches and as streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

pytestmark = pytest.mark.java


def reading(spark: Any, kafka: Any, how: str = "ottla", stream: bool = False, **options: Any) -> Any:
    reader = (spark.readStream if stream else spark.read).format(how)
    reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap)
    reader = reader.option("kafka.isolation.level", "read_committed")
    for key, value in options.items():
        reader = reader.option(key, value if isinstance(value, str) else json.dumps(value))
    return reader.load()


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def fill_with_everything(kafka: Any, topic: str) -> None:
    """Keys and values with and without bytes, headers, all codecs, committed and aborted transactions."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "compression.type": codec,
                "transactional.id": f"{topic}-{codec}",
            }
        )
        producer.init_transactions(60)
        for committed in (True, False, True):
            producer.begin_transaction()
            for number in range(60):
                producer.produce(
                    topic,
                    None if number % 7 == 0 else b"%s-%d" % (codec.encode(), number) * (number % 5),
                    key=None if number % 3 == 0 else b"k%d" % number,
                    partition=number % 3,
                    timestamp=1_700_000_000_000 + number,
                    headers=[("trace", b"on"), ("empty", None)] if number % 4 == 0 else None,
                )
            if committed:
                producer.commit_transaction(60)
            else:
                producer.flush(60)
                producer.abort_transaction(60)


def test_a_batch_has_the_rows_of_sparks_own_source(spark: Any, kafka: Any, name: Any) -> None:
    topic = kafka.make(name("t"), 3)
    fill_with_everything(kafka, topic)
    expected = rows_of(reading(spark, kafka, "kafka", subscribe=topic, includeHeaders="true"))
    assert len(expected) == 600
    found = reading(spark, kafka, subscribe=topic, includeHeaders="true")
    assert found.schema == reading(spark, kafka, "kafka", subscribe=topic, includeHeaders="true").schema
    assert rows_of(found) == expected
    # In more pieces than there are partitions, and with other columns.
    pieces = reading(spark, kafka, subscribe=topic, includeHeaders="true", minPartitions="6")
    assert pieces.rdd.getNumPartitions() == 6
    assert rows_of(pieces) == expected
    few = reading(spark, kafka, subscribe=topic, columns="offset,value")
    assert few.columns == ["offset", "value"]
    assert sorted(few.collect(), key=str) == sorted([(row[4], row[1]) for row in expected], key=str)


def test_subscriptions_and_bounds_as_in_sparks_own_source(spark: Any, ottla_kafka: Any, name: Any) -> None:
    one, two = ottla_kafka.make(name("one"), 2), ottla_kafka.make(name("two"), 2)
    for topic in (one, two):
        for second in range(4):
            producer = Producer({"bootstrap.servers": ottla_kafka.bootstrap})
            for number in range(50):
                producer.produce(
                    topic, b"%d" % number, partition=number % 2, timestamp=1_000_000 + second * 1_000
                )
            producer.flush(60)
    half = {one: {"0": 20, "1": -2}}
    for options in (
        {"subscribe": f"{one},{two}"},
        {"subscribePattern": name("o.*").replace("-o.*", "-(one|two)")},
        {"assign": {one: [1], two: [0]}},
        {"subscribe": one, "startingOffsets": half, "endingOffsets": {one: {"0": 30, "1": -1}}},
        {"subscribe": one, "startingTimestamp": "1001000", "endingTimestamp": "1002500"},
        {"subscribe": one, "startingOffsetsByTimestamp": {one: {"0": 1_001_000, "1": 1_003_000}}},
        {"subscribe": one, "startingTimestamp": "9000000", "startingOffsetsByTimestampStrategy": "latest"},
    ):
        expected = rows_of(reading(spark, ottla_kafka, "kafka", **options))
        assert rows_of(reading(spark, ottla_kafka, **options)) == expected, options


def run(frame: Any, state: Path, table: Path) -> list[Any]:
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"file://{table}")
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return list(query.recentProgress)


def test_a_stream_goes_on_from_its_checkpoint_in_batches_of_a_bounded_size(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    topic = ottla_kafka.make(name("t"), 2)
    stream = reading(
        spark,
        ottla_kafka,
        stream=True,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="100",
    )
    for turn in range(2):
        ottla_kafka.fill(topic, ((None, f"{turn}-{number}") for number in range(250)), partition=turn)
        if turn == 1:
            admin = AdminClient({"bootstrap.servers": ottla_kafka.bootstrap})
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
            ottla_kafka.fill(topic, ((None, f"new-{number}") for number in range(10)), partition=2)
        progress = run(stream, tmp_path / "state", tmp_path / "table")
        assert max(one.numInputRows for one in progress) == 100
    found = sorted(row.value.decode() for row in spark.read.parquet(str(tmp_path / "table")).collect())
    assert found == sorted(
        [f"{turn}-{number}" for turn in range(2) for number in range(250)]
        + [f"new-{number}" for number in range(10)]
    )
    ends = json.loads((tmp_path / "state" / "offsets" / "5").read_text().splitlines()[-1])
    assert ends == {topic: {"0": 250, "1": 250, "2": 10}}


def test_the_sink_commits_the_offsets_of_the_reader_to_its_group(
    spark: Any, kafka: Any, name: Any, tmp_path: Path
) -> None:
    from pyspark.sql import functions as fn

    from ottla.pipeline import KafkaSink, track_lag

    source, target, group = kafka.make(name("in"), 2), kafka.make(name("out")), name("group")
    kafka.fill(source, ((None, f"word-{number % 5}") for number in range(500)))
    counts = (
        reading(spark, kafka, stream=True, subscribe=source, startingOffsets="earliest")
        .groupBy(fn.col("value").alias("key"))
        .count()
        .select("key", fn.col("count").cast("string").alias("value"))
    )
    sink = KafkaSink(kafka.bootstrap, topic=target, transactional_id=group)
    query = (
        counts.writeStream.foreachBatch(sink)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    tracker = track_lag(query, group=name("tracked"))
    query.awaitTermination()
    assert {one.key(): one.value() for one in kafka.read(target)} == {
        b"word-%d" % n: b"100" for n in range(5)
    }
    assert kafka.committed(group, source) == kafka.ends(source)
    assert tracker.wait_for(kafka.ends(source), source, 60)
    tracker.stop()
    sink.close()


def test_records_that_are_gone_fail_a_query_unless_it_says_otherwise(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    topic = ottla_kafka.make(name("t"))
    ottla_kafka.fill(topic, ((None, str(number)) for number in range(100)))
    asked = {"subscribe": topic, "startingOffsets": {topic: {"0": 10}}}
    admin = AdminClient({"bootstrap.servers": ottla_kafka.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 60)])[TopicPartition(topic, 0, 60)].result(60)
    with pytest.raises(Exception, match=f"{topic}-0 does not hold offset 10.*set failOnDataLoss to false"):
        reading(spark, ottla_kafka, **asked).collect()
    found = reading(spark, ottla_kafka, failOnDataLoss="false", **asked).collect()
    assert [row.offset for row in found] == list(range(60, 100))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic"),
        ({}, "give one of the options subscribe"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be latest"),
    ],
)
def test_mistakes_are_named(spark: Any, ottla_kafka: Any, options: Any, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        reading(spark, ottla_kafka, **options).collect()
