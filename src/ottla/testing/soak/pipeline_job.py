"""The Spark driver of a soak: copies the committed records of a topic with their places, exactly once."""

from __future__ import annotations

import argparse

from pyspark.sql import functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline import kafka_sink, spark_session

EDGE = " "
"""Between partition, offset and value of a copied record."""


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m ottla.testing.soak.pipeline_job", description=__doc__)
    words.add_argument("bootstrap")
    words.add_argument("source")
    words.add_argument("target")
    words.add_argument("checkpoint")
    words.add_argument("--once", action="store_true", help="end when everything is copied that is there")
    given = words.parse_args()
    spark = spark_session(
        "soak", master="local[1]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "700m"}
    )
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = fn.concat_ws(
        EDGE,
        fn.col("partition").cast("string"),
        fn.col("offset").cast("string"),
        fn.col("value").cast("string"),
    )
    writer = kafka_sink(
        records.select(value.alias("value")),
        topic=given.target,
        bootstrap_servers=given.bootstrap,
        transactional_id="soak-pipeline",
    )
    assert isinstance(writer, DataStreamWriter)
    writer = writer.option("checkpointLocation", given.checkpoint)
    query = (
        writer.trigger(availableNow=True) if given.once else writer.trigger(processingTime="1 second")
    ).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
