"""Structured Streaming as users write it, with Spark's own Kafka source and sink, against Ottla."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.testing.apache import run_java

pytestmark = pytest.mark.java


def reading(spark: Any, kafka: Any, topic: str, **options: Any) -> Any:
    reader = spark.read if options.pop("batch", False) else spark.readStream
    reader = (
        reader.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", topic)
    )
    for key, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(key, value)
    return reader.load()


def writing(frame: Any, kafka: Any, topic: str, checkpoint: Path, mode: str) -> None:
    query = (
        frame.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_batch_read_and_write(spark: Any, ottla_kafka: Any, name: Any) -> None:
    from pyspark.sql import functions as fn

    topic = ottla_kafka.make(name("t"), 3)
    rows = spark.range(1_000).select(
        fn.col("id").cast("string").alias("key"), fn.concat(fn.lit("v"), "id").alias("value")
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", ottla_kafka.bootstrap).option(
        "topic", topic
    ).save()
    back = reading(spark, ottla_kafka, topic, batch=True)
    pairs = back.select(fn.col("key").cast("string"), fn.col("value").cast("string")).collect()
    assert sorted((int(key), value) for key, value in pairs) == [(n, f"v{n}") for n in range(1_000)]
    assert {row.partition for row in back.select("partition").distinct().collect()} == {0, 1, 2}


def test_a_batch_reads_a_range_of_offsets_and_headers(spark: Any, ottla_kafka: Any, name: Any) -> None:
    topic = ottla_kafka.make(name("t"))
    ottla_kafka.fill(topic, ((None, str(n)) for n in range(100)))
    asked = {"startingOffsets": f'{{"{topic}":{{"0":10}}}}', "endingOffsets": f'{{"{topic}":{{"0":20}}}}'}
    back = reading(spark, ottla_kafka, topic, batch=True, includeHeaders="true", **asked)
    assert sorted(row.offset for row in back.collect()) == list(range(10, 20))
    assert "headers" in back.columns


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_output_modes(spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path, mode: str) -> None:
    from pyspark.sql import functions as fn

    source, target = ottla_kafka.make(name("in"), 2), ottla_kafka.make(name("out"))
    ottla_kafka.fill(source, ((None, f"word-{n % 5}") for n in range(50)))
    stream = reading(spark, ottla_kafka, source).select(fn.col("value").cast("string").alias("key"))
    if mode == "append":
        result = stream.select("key", fn.upper("key").alias("value"))
    else:
        result = stream.groupBy("key").count().select("key", fn.col("count").cast("string").alias("value"))
    writing(result, ottla_kafka, target, tmp_path / "checkpoint", mode)
    found = ottla_kafka.read(target)
    if mode == "append":
        assert len(found) == 50
    else:
        assert {one.key(): one.value() for one in found} == {f"word-{n}".encode(): b"10" for n in range(5)}


def test_a_windowed_count_in_append_mode(spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as fn

    source, target = ottla_kafka.make(name("in")), ottla_kafka.make(name("out"))
    ottla_kafka.fill(source, ((None, str(second)) for second in (1, 2, 3, 11, 12, 40)))
    stream = reading(spark, ottla_kafka, source).select(
        fn.timestamp_seconds(fn.col("value").cast("string").cast("long")).alias("at")
    )
    counts = stream.withWatermark("at", "5 seconds").groupBy(fn.window("at", "10 seconds")).count()
    rows = counts.select(
        fn.unix_seconds("window.start").cast("string").alias("key"),
        fn.col("count").cast("string").alias("value"),
    )
    writing(rows, ottla_kafka, target, tmp_path / "checkpoint", "append")
    assert {one.key(): one.value() for one in ottla_kafka.read(target)} == {b"0": b"3", b"10": b"2"}


def test_a_stream_into_parquet(spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    topic = ottla_kafka.make(name("in"), 2)
    ottla_kafka.fill(topic, ((None, str(n)) for n in range(500)))
    query = (
        reading(spark, ottla_kafka, topic)
        .selectExpr("CAST(value AS STRING) AS value", "timestamp")
        .writeStream.format("parquet")
        .option("path", f"file://{tmp_path}/table")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(f"{tmp_path}/table").count() == 500


def test_lag_is_seen_by_kafkas_own_tool(spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    from ottla.pipeline import track_lag

    topic, group = ottla_kafka.make(name("in"), 2), name("group")
    ottla_kafka.fill(topic, ((str(n), str(n)) for n in range(400)))
    query = (
        reading(spark, ottla_kafka, topic, maxOffsetsPerTrigger=100)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    tracker = track_lag(query, group=group)
    query.processAllAvailable()
    assert tracker.wait_for(ottla_kafka.ends(topic), topic, timeout_s=30)
    query.stop()
    output = run_java(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", ottla_kafka.bootstrap, "--describe", "--group", group),
    )
    lags = [line.split()[5] for line in output.splitlines() if topic in line.split()[1:2]]
    assert lags == ["0", "0"], output
    ottla_kafka.fill(topic, ((None, "late") for _ in range(7)), partition=1)
    output = run_java(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", ottla_kafka.bootstrap, "--describe", "--group", group),
    )
    lags = sorted(line.split()[5] for line in output.splitlines() if topic in line.split()[1:2])
    assert lags == ["0", "7"], output
    tracker.stop()
