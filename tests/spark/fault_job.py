"""The driver that gets killed: a stateful query on a Spark cluster, from one topic to another, exactly once.

    python fault_job.py BOOTSTRAP SOURCE TARGET CHECKPOINT MASTER PER_BATCH

It ends by itself when all that was in the source at its start is read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import functions as fn

from ottla.pipeline import kafka_sink, spark_session


def shout(batches: Iterator[Any]) -> Iterator[Any]:
    """A pass through Python, as a user's function would be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.utf8_upper(batch.column(0))], names=["id"])


def main(bootstrap: str, source: str, target: str, checkpoint: str, master: str, per_batch: str) -> None:
    session = spark_session(
        "faults",
        master=master,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    stream = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    ids = stream.select(fn.col("value").cast("string").alias("id")).mapInArrow(shout, "id string")
    # Each id comes twice; the state remembers which have been seen.
    seen_once = ids.dropDuplicates(["id"])
    query = (
        kafka_sink(
            seen_once.select(fn.col("id").alias("key"), fn.col("id").alias("value")),
            topic=target,
            bootstrap_servers=bootstrap,
            transactional_id=f"{target}-sink",
            group=f"{target}-group",
        )
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
