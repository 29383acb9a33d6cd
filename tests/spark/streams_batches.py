"""Micro-batches without a broker: files with the columns of Spark's Kafka source, one file for each batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = "topic string, partition int, offset long, key binary, value binary, timestamp timestamp"


class Arrived(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time: int


class Output(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    time: int


def write_batches(directory: Path, batches: Sequence[Sequence[Arrived]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    for number, batch in enumerate(batches):
        topics, partitions, offsets, keys, values, times = zip(*batch, strict=True)
        path = directory / f"{number:04d}.parquet"
        pq.write_table(
            pa.table(
                {
                    "topic": pa.array(topics),
                    "partition": pa.array(partitions, pa.int32()),
                    "offset": pa.array(offsets, pa.int64()),
                    "key": pa.array(keys, pa.binary()),
                    "value": pa.array(values, pa.binary()),
                    "timestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
                }
            ),
            path,
        )
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def run_batches(spark: Any, topology: Any, source: Path, checkpoint: Path, tasks: int) -> list[list[Output]]:
    """The output of a topology on Spark, batch by batch."""
    from ottla.streams.planner.query import build, output_mode, plan_for_spark
    from ottla.streams.planner.rows import Tasks

    records = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    shuffles = int(spark.conf.get("spark.sql.shuffle.partitions"))
    plan = plan_for_spark(topology)
    out = build(records, plan, Tasks.spread(tasks, shuffles))
    output: list[list[Output]] = []

    def collect(frame: Any, _: int) -> None:
        rows = frame.collect()
        output.append(
            [
                Output(
                    row.topic,
                    None if row.key is None else bytes(row.key),
                    None if row.value is None else bytes(row.value),
                    round(row.timestamp.timestamp() * 1000),
                )
                for row in rows
            ]
        )

    query = (
        out.writeStream.outputMode(output_mode(plan))
        .foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return output
