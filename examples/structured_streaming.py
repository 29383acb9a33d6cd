"""Spark's Structured Streaming with Kafka, in the ways people use it most. Read it from top to bottom, or run a part:

    ottla start &                                              # a broker on localhost:9092
    python examples/structured_streaming.py generate           # text lines into the topic `lines`
    python examples/structured_streaming.py console            # word counts on the terminal
    python examples/structured_streaming.py parquet --path data/lines       # or hdfs://namenode/data/lines
    python examples/structured_streaming.py jdbc --url "jdbc:derby:words;create=true"
    python examples/structured_streaming.py kafka              # word counts into `word-counts`, exactly once

A stream reads on until Ctrl-C; with --once it reads what is there and stops. Checkpoints are kept under
`--checkpoints`, so that the next run goes on where this one ended.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ottla import KafkaProducer
from ottla.pipeline import kafka_sink, spark_session, track_lag

TEXT = "the quick brown fox jumps over the lazy dog while kafka and spark carry the news"
WORDS = TEXT.split()
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


def generate(bootstrap: str, topic: str, lines: int, seed: int = 1) -> None:
    """Some text."""
    chance = random.Random(seed)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for _ in range(lines):
        producer.send(topic, " ".join(chance.choices(WORDS, k=8)).encode())
    producer.flush()
    producer.close()


def read_lines(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The topic as a table that grows: one row per record, with key, value, topic, partition, offset, timestamp."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def count_words(lines: DataFrame) -> DataFrame:
    words = lines.select(fn.explode(fn.split(fn.col("value").cast("string"), " ")).alias("word"))
    return words.groupBy("word").count()


def to_console(lines: DataFrame) -> Any:
    """The whole table after each batch: output mode `complete`."""
    counts = count_words(lines).orderBy(fn.desc("count"))
    return counts.writeStream.format("console").outputMode("complete").option("numRows", 10)


def to_parquet(lines: DataFrame, path: str) -> Any:
    """New lines into files that any tool reads, once each: output mode `append`."""
    rows = lines.select(fn.col("value").cast("string").alias("line"), "timestamp")
    return rows.writeStream.format("parquet").outputMode("append").option("path", path)


def to_jdbc(lines: DataFrame, url: str, table: str, driver: str) -> Any:
    """The counts that changed, batch by batch, into a table: a reader takes the row of the highest batch per word."""

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.withColumn("batch", fn.lit(batch_id))
        rows.write.jdbc(url, table, mode="append", properties={"driver": driver})

    counts = count_words(lines).select(fn.col("word"), fn.col("count").alias("occurrences"))
    return counts.writeStream.outputMode("update").foreachBatch(write)


def to_kafka(lines: DataFrame, bootstrap: str, topic: str) -> Any:
    """Counts into a topic: each batch one transaction, with the offsets that were read for it."""
    counts = count_words(lines).select(
        fn.col("word").alias("key"), fn.col("count").cast("string").alias("value")
    )
    writer: Any = kafka_sink(
        counts,
        topic=topic,
        bootstrap_servers=bootstrap,
        transactional_id="structured-word-count",
        group="structured-word-count",
    )
    return writer.outputMode("update")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("part", choices=("generate", "console", "parquet", "jdbc", "kafka"))
    words.add_argument("--bootstrap-server", default="localhost:9092")
    words.add_argument("--master", help="Spark's; local on all cores if not given")
    words.add_argument("--lines", type=int, default=10_000, help="how many to generate")
    words.add_argument("--path", default="ottla-data/lines", help="where Parquet files go")
    words.add_argument("--url", default="jdbc:derby:ottla-words;create=true")
    words.add_argument("--driver", default=DERBY, help="the JDBC driver's class")
    words.add_argument("--packages", default="", help="the driver's jar, as group:artifact:version")
    words.add_argument("--checkpoints", default="ottla-data/checkpoints")
    words.add_argument("--once", action="store_true", help="read what is there, then stop")
    given = words.parse_args()
    if given.part == "generate":
        generate(given.bootstrap_server, "lines", given.lines)
        return
    packages = [one for one in given.packages.split(",") if one]
    spark = spark_session(f"structured-{given.part}", master=given.master, packages=packages)
    lines = read_lines(spark, given.bootstrap_server, "lines")
    writer = {
        "console": lambda: to_console(lines),
        "parquet": lambda: to_parquet(lines, given.path),
        "jdbc": lambda: to_jdbc(lines, given.url, "words", given.driver),
        "kafka": lambda: to_kafka(lines, given.bootstrap_server, "word-counts"),
    }[given.part]()
    writer = writer.option("checkpointLocation", f"{given.checkpoints}/{given.part}")
    query = (writer.trigger(availableNow=True) if given.once else writer).start()
    if given.part != "kafka":
        # The sink commits its source offsets itself; any other query gets a group that shows its lag.
        track_lag(query, group=f"structured-{given.part}")
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


if __name__ == "__main__":
    main()
