"""A driver that dies after a batch's transaction and before Spark's own log of it: the next run goes on exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.java


class Crash(Exception):
    """Stands for the end of the driver."""


def reading(spark: Any, kafka: Any, topic: str) -> Any:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def run(
    rows: Any, kafka: Any, topic: str, application: str, state: Path, mode: str, crash_in: int = -1
) -> None:
    """Reads all there is; with `crash_in` the driver ends after the transaction of that batch."""
    from ottla.pipeline import KafkaSink

    sink = KafkaSink(kafka.bootstrap, topic=topic, transactional_id=application)
    crashed: list[int] = []

    def write(batch: Any, number: int) -> None:
        sink(batch, number)
        if number == crash_in:
            crashed.append(number)
            raise Crash

    query = (
        rows.writeStream.foreachBatch(write)
        .outputMode(mode)
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        if not crashed:
            raise
    finally:
        sink.close()
    assert crashed == ([crash_in] if crash_in >= 0 else [])


def last_of(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


@pytest.mark.parametrize("by", ["crash", "deletion"])
def test_counts_go_on_after_a_crash_between_transaction_and_commit_log(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path, by: str
) -> None:
    from pyspark.sql import functions as fn

    source, target, state = ottla_kafka.make(name("in"), 2), ottla_kafka.make(name("out")), tmp_path / "state"
    counts = (
        reading(spark, ottla_kafka, source)
        .groupBy(fn.col("value").alias("key"))
        .count()
        .select("key", fn.col("count").cast("string").alias("value"))
    )
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for turn in range(3):
        ottla_kafka.fill(source, ((None, f"word-{number % 7}") for number in range(70)))
        expected.update((b"word-%d" % number, b"%d" % (10 * (turn + 1))) for number in range(7))
        crash_in = 1 if by == "crash" and turn == 1 else -1
        run(counts, ottla_kafka, target, name("app"), state, "update", crash_in)
        if by == "deletion" and turn == 1:
            last = last_of(state / "commits")
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    assert Counter((one.key(), one.value()) for one in ottla_kafka.read(target)) == expected


def test_a_watermark_goes_on_after_a_crash_between_transaction_and_commit_log(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    """The batch that is not written again still moves the watermark: late records stay late, and windows close."""
    from pyspark.sql import functions as fn

    source, target, state = ottla_kafka.make(name("in")), ottla_kafka.make(name("out")), tmp_path / "state"
    counts = (
        reading(spark, ottla_kafka, source)
        .select(fn.timestamp_seconds(fn.col("value").cast("string").cast("long")).alias("at"))
        .withWatermark("at", "5 seconds")
        .groupBy(fn.window("at", "10 seconds"))
        .count()
        .select(
            fn.unix_seconds("window.start").cast("string").alias("key"),
            fn.col("count").cast("string").alias("value"),
        )
    )
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for crash_in, seconds, closed in (
        (0, (1, 2, 3, 11, 12, 40), []),
        (-1, (), [(b"0", b"3"), (b"10", b"2")]),
        (-1, (4, 13, 60), [(b"40", b"1")]),
    ):
        ottla_kafka.fill(source, ((None, str(second)) for second in seconds))
        run(counts, ottla_kafka, target, name("app"), state, "append", crash_in)
        expected.update(closed)
        assert Counter((one.key(), one.value()) for one in ottla_kafka.read(target)) == expected
