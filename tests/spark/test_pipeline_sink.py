"""The sink as a user sees it: DataFrames in, records out, one transaction per batch."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

from ottla.client.partitioners import murmur2
from ottla.pipeline.failures import PipelineError, SinkFenced

pytestmark = pytest.mark.java


def lines(spark: Any, count: int) -> Any:
    from pyspark.sql import functions as fn

    return spark.range(count).select(
        fn.concat(fn.lit("k"), fn.col("id") % 100).alias("key"),
        fn.lpad(fn.col("id").cast("string"), 100, "x").alias("value"),
        fn.timestamp_millis(fn.col("id") + 1_700_000_000_000).alias("timestamp"),
        fn.when(
            fn.col("id") % 2 == 0,
            fn.array(fn.struct(fn.lit("trace").alias("key"), fn.lit("on").cast("binary").alias("value"))),
        ).alias("headers"),
    )


def test_a_data_frame_becomes_records(spark: Any, kafka: Any, name: Any) -> None:
    from ottla.pipeline import kafka_sink

    topic = kafka.make(name("out"), 3)
    result = kafka_sink(lines(spark, 5_000), topic=topic, bootstrap_servers=kafka.bootstrap)
    assert result.records == 5_000

    found = {int(one.value().lstrip(b"x") or b"0"): one for one in kafka.read(topic)}
    assert sorted(found) == list(range(5_000))
    for number in range(0, 5_000, 137):
        record = found[number]
        assert record.key() == b"k%d" % (number % 100)
        assert record.partition() == (murmur2(record.key()) & 0x7FFFFFFF) % 3
        assert record.timestamp()[1] == 1_700_000_000_000 + number
        assert record.headers() == ([("trace", b"on")] if number % 2 == 0 else None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(spark: Any, kafka: Any, name: Any, codec: str) -> None:
    from ottla.pipeline import kafka_sink

    topic = kafka.make(name("out"), 2, compression_type="producer")
    kafka_sink(lines(spark, 3_000), topic=topic, bootstrap_servers=kafka.bootstrap, compression=codec)
    assert len(kafka.values(topic)) == 3_000


def test_a_topic_that_compresses_takes_plain_batches(spark: Any, kafka: Any, name: Any) -> None:
    from ottla.pipeline import kafka_sink

    topic = kafka.make(name("out"), 2, compression_type="zstd")
    kafka_sink(lines(spark, 3_000), topic=topic, bootstrap_servers=kafka.bootstrap)
    assert len(kafka.values(topic)) == 3_000


def test_rows_choose_their_topic_and_partition(spark: Any, ottla_kafka: Any, name: Any) -> None:
    from pyspark.sql import functions as fn

    from ottla.pipeline import kafka_sink

    even, odd = ottla_kafka.make(name("even"), 2), ottla_kafka.make(name("odd"), 5)
    rows = spark.range(1_000).select(
        fn.col("id").cast("string").alias("value"),
        fn.when(fn.col("id") % 2 == 0, fn.lit(even)).otherwise(fn.lit(odd)).alias("topic"),
        fn.when(fn.col("id") % 10 == 1, fn.lit(4)).alias("partition"),
    )
    kafka_sink(rows, bootstrap_servers=ottla_kafka.bootstrap)
    assert sorted(int(one.value()) for one in ottla_kafka.read(even)) == list(range(0, 1_000, 2))
    found = ottla_kafka.read(odd)
    assert sorted(int(one.value()) for one in found) == list(range(1, 1_000, 2))
    assert {one.partition() for one in found if int(one.value()) % 10 == 1} == {4}


def test_topics_that_are_known_spread_over_the_tasks(spark: Any, ottla_kafka: Any, name: Any) -> None:
    """The first batch finds the topics; from the second on Spark computes Kafka's partitions itself."""
    from pyspark.sql import functions as fn

    from ottla.pipeline import KafkaSink

    one, two, late = (ottla_kafka.make(name(what), 3) for what in ("one", "two", "late"))
    sink = KafkaSink(ottla_kafka.bootstrap, transactional_id=name("id"))

    def rows(*topics: str) -> Any:
        names = fn.array(*[fn.lit(topic) for topic in topics])
        return spark.range(900).select(
            fn.concat(fn.lit("k"), fn.col("id") % 40).alias("key"),
            fn.col("id").cast("string").alias("value"),
            fn.element_at(names, (fn.col("id") % len(topics) + 1).cast("int")).alias("topic"),
            fn.when(fn.col("id") % 100 == 7, fn.lit(2)).alias("partition"),
        )

    for batch, topics in enumerate([(one, two), (one, two), (one, late)]):
        sink.write(rows(*topics), batch, lineage="query")
    found = [record for topic in (one, two, late) for record in ottla_kafka.read(topic)]
    assert Counter(int(each.value()) for each in found) == Counter(dict.fromkeys(range(900), 3))
    for each in found:
        hashed = (murmur2(each.key()) & 0x7FFFFFFF) % 3
        assert each.partition() == (2 if int(each.value()) % 100 == 7 else hashed)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_of_the_driver_come_with_those_of_the_frame(
    spark: Any, kafka: Any, name: Any, exactly_once: bool
) -> None:
    from ottla.pipeline import KafkaSink

    topic, positions = kafka.make(name("out"), 2), kafka.make(name("positions"), 2)
    sink = KafkaSink(
        kafka.bootstrap, topic=topic, transactional_id=name("id"), exactly_once=exactly_once, group=""
    )
    # Also to the partitions that the tasks wrote to, where sequence numbers go on.
    extra = [(positions, b"table-1", b"1000"), (topic, b"k1", b"last"), (topic, None, None)]
    for batch in range(2):
        result = sink.write(lines(spark, 500), batch, lineage="query", extra=extra)
        assert result.records == 500
    if exactly_once:
        assert sink.write(lines(spark, 500), 1, lineage="query", extra=extra).skipped
    assert [(one.key(), one.value()) for one in kafka.read(positions)] == [(b"table-1", b"1000")] * 2
    found = Counter(one.value() for one in kafka.read(topic))
    assert (found[b"last"], found[None], len(found), found.total()) == (2, 2, 502, 1004)
    with pytest.raises(PipelineError, match="__ottla_sink_batches holds the sink's own marks"):
        sink.write(lines(spark, 1), 2, lineage="query", extra=[("__ottla_sink_batches", b"k", b"v")])
    sink.close()


def test_without_transactions_records_are_just_written(spark: Any, kafka: Any, name: Any) -> None:
    from ottla.pipeline import kafka_sink

    topic = kafka.make(name("out"), 2)
    kafka_sink(lines(spark, 1_000), topic=topic, bootstrap_servers=kafka.bootstrap, exactly_once=False)
    assert len(kafka.values(topic)) == 1_000


def test_a_batch_that_was_committed_is_skipped(spark: Any, kafka: Any, name: Any) -> None:
    from ottla.pipeline import KafkaSink

    topic, identity = kafka.make(name("out"), 2), name("id")
    first = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=identity)
    assert not first.write(lines(spark, 100), 0, lineage="query").skipped
    assert first.write(lines(spark, 100), 0, lineage="query").skipped
    second = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=identity)
    assert second.write(lines(spark, 100), 0, lineage="query").skipped
    assert not second.write(lines(spark, 100), 1, lineage="query").skipped
    # Another checkpoint counts its batches from zero.
    third = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=identity)
    assert not third.write(lines(spark, 100), 0, lineage="another query").skipped
    assert sum(kafka.values(topic).values()) == 300


def test_a_stale_driver_is_fenced(spark: Any, kafka: Any, name: Any) -> None:
    from ottla.pipeline import KafkaSink

    topic, identity = kafka.make(name("out"), 2), name("id")
    stale = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=identity)
    stale.write(lines(spark, 100), 0, lineage="query")
    fresh = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=identity)
    fresh.write(lines(spark, 100), 1, lineage="query")
    with pytest.raises(SinkFenced, match="taken over"):
        stale.write(lines(spark, 100), 2, lineage="query")
    with pytest.raises(SinkFenced):
        stale.write(lines(spark, 100), 2, lineage="query")
    fresh.write(lines(spark, 100), 2, lineage="query")
    assert sum(kafka.values(topic).values()) == 300


def test_a_failing_batch_leaves_nothing(spark: Any, kafka: Any, name: Any) -> None:
    from pyspark.sql import functions as fn

    from ottla.pipeline import KafkaSink

    topic = kafka.make(name("out"), 2)
    sink = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=name("id"))
    rows = lines(spark, 1_000).withColumn("partition", (fn.col("timestamp").cast("long") * 0).cast("int"))
    bad = rows.union(rows.limit(1).withColumn("partition", fn.lit(7)))
    with pytest.raises(PipelineError, match="has no partition 7: it has 2"):
        sink.write(bad, 0, lineage="query")
    assert kafka.read(topic) == []
    sink.write(rows, 0, lineage="query")
    assert len(kafka.values(topic)) == 1_000


def test_a_streaming_query_counts_exactly_once(spark: Any, kafka: Any, name: Any, tmp_path: Any) -> None:
    from pyspark.sql import functions as fn

    from ottla.pipeline import kafka_sink

    source, target, group = kafka.make(name("in"), 2), kafka.make(name("out"), 3), name("group")
    words = [f"word-{number % 50}" for number in range(2_000)]
    kafka.fill(source, ((word, word) for word in words))

    def run() -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 900)
            .load()
        )
        counts = stream.groupBy(fn.col("value").alias("key")).count()
        query = (
            kafka_sink(
                counts.select("key", fn.col("count").cast("string").alias("value")),
                topic=target,
                bootstrap_servers=kafka.bootstrap,
                transactional_id=name("id"),
                group=group,
            )
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    kafka.fill(source, ((word, word) for word in words[:500]))
    run()
    last = {one.key(): int(one.value()) for one in kafka.read(target)}
    assert last == {f"word-{number}".encode(): 50 for number in range(50)}
    # The group stands where the query has read to: no lag.
    assert kafka.committed(group, source) == kafka.ends(source)


def test_mistakes_are_met_with_a_sentence(spark: Any, ottla_kafka: Any, name: Any) -> None:
    from ottla.pipeline import kafka_sink

    servers = ottla_kafka.bootstrap
    with pytest.raises(PipelineError, match="needs a column `value`"):
        kafka_sink(spark.range(3), topic="t", bootstrap_servers=servers)
    with pytest.raises(PipelineError, match="no topic to write to"):
        kafka_sink(lines(spark, 1), bootstrap_servers=servers)
    with pytest.raises(PipelineError, match="column `value` is bigint"):
        kafka_sink(spark.range(3).toDF("value"), topic="t", bootstrap_servers=servers)
    with pytest.raises(PipelineError, match="compression is one of"):
        kafka_sink(lines(spark, 1), topic="t", bootstrap_servers=servers, compression="brotli")


def test_a_lost_worker_makes_the_batch_run_again(spark: Any, kafka: Any, name: Any, tmp_path: Any) -> None:
    """A Python worker that dies while it writes fails its task; the batch is aborted and written again."""
    from ottla.pipeline import KafkaSink

    topic, once = kafka.make(name("out"), 1), str(tmp_path / "died")

    def die_once(batches: Any) -> Any:
        import os
        import signal

        for batch in batches:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    sink = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=name("id"))
    rows = lines(spark, 500).select("key", "value")
    result = sink.write(rows.mapInArrow(die_once, "key string, value string"), 0, lineage="query")
    assert result.attempts == 2
    assert len(kafka.values(topic)) == 500
