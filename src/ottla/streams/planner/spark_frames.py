"""The frames that strategies share: records as they arrive, stages with state, records for the sink."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.small_batches import Finish
from ottla.streams.graph.operators import Process
from ottla.streams.planner.plan import OUT, Plan
from ottla.streams.planner.rows import HEADERS, SCHEMA, Tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PythonStage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A stage that runs in Python workers, on batches of records as they arrive."""


class Arriving(Protocol):
    """What an application reads, before its first stage."""

    def frame(self) -> DataFrame:
        """The records with the columns of Spark's Kafka source, read without Python."""

    def rows(self) -> DataFrame:
        """The records with topic, partition, offset, key, value, time (in ms) and headers."""

    def through(self, stage: PythonStage, schema: str, *, with_headers: bool) -> DataFrame:
        """What a stage makes of the records. Its batches have topic, partition, offset, key, value and time (in ms)."""


@dataclass(frozen=True, slots=True)
class ArrivingFrame:
    """Records that Spark has read."""

    records: DataFrame

    def frame(self) -> DataFrame:
        """The records themselves."""
        return self.records

    def rows(self) -> DataFrame:
        """The records with the time in milliseconds."""
        return arrived_records(self.records, with_headers=True)

    def through(self, stage: PythonStage, schema: str, *, with_headers: bool) -> DataFrame:
        """The records in Python workers."""
        return arrived_records(self.records, with_headers=with_headers).mapInArrow(stage, schema)


def arrived_records(records: DataFrame, *, with_headers: bool) -> DataFrame:
    """The columns of Spark's Kafka source that a stage reads, the time in milliseconds."""
    from pyspark.sql import functions as f

    return records.select(
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        f.unix_millis("timestamp").alias("time"),
        *([_headers(records)] if with_headers else []),
    )


def _headers(records: DataFrame) -> Column:
    from pyspark.sql import functions as f

    # Never null: from the first null of a list column on, Spark computes the size of each row again.
    none = f.array().cast(HEADERS)
    if "headers" not in records.columns:
        return none.alias("headers")
    return f.coalesce(f.col("headers").cast(HEADERS), none).alias("headers")


def run_stateful_stages(rows: DataFrame, plan: Plan, tasks: Tasks) -> DataFrame:
    """Rows through each stage with state, one transformWithState for each."""
    from ottla.streams.planner.stateful_stage import StatefulStage

    run = uuid.uuid4().hex
    for stage in plan.stages[1:]:
        timers = any(isinstance(node.operator, Process) for node in stage.nodes)
        rows = rows.groupBy("group").transformWithStateInPandas(
            StatefulStage(plan, stage.number, tasks, run, uses_timers=timers),
            SCHEMA,
            "append",
            "processingTime" if timers else "none",
        )
    return rows


def finished_records(rows: DataFrame) -> DataFrame:
    """The rows that have passed all stages, as topic, key, value, timestamp, headers and partition."""
    from pyspark.sql import functions as f

    return rows.where(f.col("stage") == OUT).select(
        "topic",
        "key",
        "value",
        f.timestamp_millis("time").alias("timestamp"),
        "headers",
        f.when(f.col("task") >= 0, f.col("task")).alias("partition"),
    )


def finished_table(table: pa.Table) -> pa.Table:
    """The same as `finished_records`, of rows that are here."""
    table = table.filter(pc.equal(table["stage"], OUT))
    task = table["task"]
    columns = {name: table[name] for name in ("topic", "key", "value")}
    partition = pc.if_else(pc.greater_equal(task, 0), task, pa.scalar(None, task.type))
    return pa.table(
        {**columns, "timestamp": table["time"], "headers": table["headers"], "partition": partition}
    )


FINISH_ROWS: Final = Finish(by_tasks=finished_records, here=finished_table)
"""The last step of a query whose frame has the rows of its last stage."""


def now_ms() -> int:
    """The wall clock when the query is built: what stages without state take for the time."""
    return time.time_ns() // 1_000_000
