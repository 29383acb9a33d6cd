"""Routed: stage 0 has no work, so Spark's columns send each record to its task, and Python first sees it with state."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.streams.graph.operators import Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.task import is_global
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.spark_frames import (
    FINISH_ROWS,
    Arriving,
    run_stateful_stages,
)
from ottla.streams.planner.stateless_stage import LANES_PER_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.small_batches import Finish


class _Route(NamedTuple):
    """The destination of a topic's records; `everywhere` is for global tables, which every task holds."""

    stage: int
    dest: int
    lane: int
    everywhere: bool


def applies(plan: Plan) -> bool:
    """Whether every topic is first looked at in a stage with state, and has one source only."""
    sources = _sources(plan)
    topics = [topic for _, source in sources for topic in source.topics]
    return all(plan.stage_of[node.name] > 0 for node, _ in sources) and len(topics) == len(set(topics))


def _sources(plan: Plan) -> list[tuple[Node, Source]]:
    return [
        (node, node.operator)
        for node in plan.topology.sources
        if isinstance(node.operator, Source) and not node.operator.internal
    ]


def build(records: Arriving, plan: Plan, tasks: Tasks) -> tuple[DataFrame, Finish]:
    """The rows of the last stage, and the step that makes records for the sink of them."""
    rows = _routed(records.rows(), plan, tasks)
    return run_stateful_stages(rows, plan, tasks), FINISH_ROWS


def _routed(arrived: DataFrame, plan: Plan, tasks: Tasks) -> DataFrame:
    from pyspark.sql import functions as f

    lanes = plan.topology.source_topics()
    routes = {
        topic: _Route(plan.stage_of[node.name], plan.index(node), lanes.index(topic), is_global(node))
        for node, source in _sources(plan)
        for topic in source.topics
    }
    table = f.create_map(
        *[
            part
            for topic, route in routes.items()
            for part in (
                f.lit(topic),
                f.struct(*[f.lit(value).alias(name) for name, value in route._asdict().items()]),
            )
        ]
    )
    known = arrived.withColumn("route", table[f.col("topic")])
    if any(route.everywhere for route in routes.values()):
        everyone = f.array(*[f.lit(task) for task in range(tasks.count)])
        alone = f.array(f.col("partition"))
        known = known.withColumn(
            "task", f.explode(f.when(f.col("route.everywhere"), everyone).otherwise(alone))
        )
    else:
        known = known.withColumn("task", f.col("partition"))
    groups = f.array(*[f.lit(group) for group in tasks.groups])
    return known.select(
        f.element_at(groups, f.pmod(f.col("task"), f.lit(tasks.count)) + 1).alias("group"),
        f.col("route.stage").alias("stage"),
        f.col("route.dest").alias("dest"),
        "task",
        "topic",
        "key",
        "value",
        "time",
        "headers",
        (f.col("route.lane") * LANES_PER_TOPIC + f.col("partition")).alias("lane"),
        f.col("offset").alias("place"),
        f.lit(0).alias("sub"),
        f.col("time").alias("arrived"),
    )
