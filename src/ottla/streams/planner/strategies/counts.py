"""Counts: all state is plain counts. Python adds up what one task reads, Spark's own aggregation keeps the totals.

The result is exact because a count does not depend on the order of its records, and its time is the latest of theirs.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.pipeline.small_batches import Finish
from ottla.streams.functions import Function
from ottla.streams.graph.topology import Node
from ottla.streams.planner.count_patterns import has_only_plain_counts
from ottla.streams.planner.counting_stage import COUNTS_SCHEMA, CountingStage, FinishingStage
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import SCHEMA, Tasks
from ottla.streams.planner.spark_frames import Arriving, finished_records, finished_table, now_ms
from ottla.streams.planner.stateless_stage import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def applies(plan: Plan) -> bool:
    """Whether all state is plain counts, and all output comes from them."""
    return has_only_plain_counts(plan.topology)


def needs_headers(plan: Plan) -> bool:
    """Counts drop headers, and functions do not receive them: only expressions can read them."""
    return any(_has_expressions(node) for node in plan.nodes)


def _has_expressions(node: Node) -> bool:
    held = [getattr(node.operator, field.name) for field in fields(node.operator)]
    functions = [one for value in held for one in (value if isinstance(value, (list, tuple)) else [value])]
    return any(isinstance(one, Function) and one.expression is not None for one in functions)


def build(records: Arriving, plan: Plan, tasks: Tasks) -> tuple[DataFrame, Finish]:
    """The totals that have changed, and the step that makes records of them; the query's output mode is "update"."""
    from pyspark.sql import functions as f

    started_ms = now_ms()
    counted = records.through(
        CountingStage(plan, started_ms), COUNTS_SCHEMA, with_headers=needs_headers(plan)
    )
    totals = counted.groupBy("store", "task", "name").agg(
        f.sum("records").alias("records"), f.max("time").alias("time")
    )
    stage = FinishingStage(plan, tasks, started_ms)
    return totals, Finish(
        by_tasks=lambda frame: finished_records(frame.mapInArrow(stage, SCHEMA)),
        here=lambda table: finished_table(
            pa.Table.from_batches(stage(iter(table.to_batches())), arrow_schema())
        ),
    )
