"""Builds the query: records as Spark's Kafka source gives them in, records for the sink out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ottla.streams.errors import TopologyError
from ottla.streams.functions import Function
from ottla.streams.graph.operators import Process, Source
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.task import is_global
from ottla.streams.loading import own_classes
from ottla.streams.planner.counting_stage import build_counts, only_counts
from ottla.streams.planner.foreign_key_replicas import resolved_tables, with_replicas
from ottla.streams.planner.rows import HEADERS, SCHEMA, Tasks
from ottla.streams.planner.stages import OUT, Plan, make_plan
from ottla.streams.planner.stateless_stage import LANES_PER_TOPIC, StatelessStage
from ottla.streams.planner.window_counting_stage import WindowCountingStage, windowed_counts_by_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_for_spark(topology: Topology) -> Plan:
    """The stages of a topology, and a sentence if Spark cannot run it."""
    plan = make_plan(with_replicas(topology, resolved_tables(topology)))
    plan.only_counts = only_counts(plan.topology)
    plan.classes = own_classes()
    check_picklable(plan)
    return plan


def check_picklable(plan: Plan) -> None:
    from pyspark.cloudpickle import dumps

    pickled: Callable[[Any], bytes] = dumps

    for node in plan.nodes:
        try:
            pickled(node.operator)
        except Exception as problem:
            raise TopologyError(
                f"the function of {node.name} cannot be sent to Spark's workers: {problem}. "
                "Open connections, files and locks inside the function instead of bringing them along"
            ) from problem


def build(records: DataFrame, plan: Plan, tasks: Tasks) -> DataFrame:
    """From a frame with Kafka's columns to one with topic, key, value, timestamp, headers and partition."""
    from pyspark.sql import functions as f

    if len(plan.stages) == 1:
        native = native_or_none(records, plan.topology)
        if native is not None:
            return native
    arrived = records.select(
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        f.unix_millis("timestamp").alias("time"),
        *([_headers(records)] if needs_headers(plan) else []),
    )
    now_ms = time.time_ns() // 1_000_000
    if plan.only_counts:
        rows = build_counts(arrived, plan, tasks, now_ms)
    else:
        rows = _first_rows(arrived, plan, tasks, now_ms)
        run = uuid.uuid4().hex
        for stage in plan.stages[1:]:
            rows = _stateful(rows, plan, stage.number, tasks, run)
    return rows.where(f.col("stage") == OUT).select(
        "topic",
        "key",
        "value",
        f.timestamp_millis("time").alias("timestamp"),
        "headers",
        f.when(f.col("task") >= 0, f.col("task")).alias("partition"),
    )


def output_mode(plan: Plan) -> str:
    """Spark's output mode for the frame of a plan."""
    return "update" if plan.only_counts else "append"


def native_or_none(records: DataFrame, topology: Topology) -> DataFrame | None:
    """A topology of expressions alone as Spark's own columns."""
    from ottla.streams.planner.expression_columns import NotNative
    from ottla.streams.planner.native import build_native

    try:
        return build_native(records, topology)
    except NotNative:
        return None


def _headers(records: DataFrame) -> Any:
    from pyspark.sql import functions as f

    # Never null: of a list column with nulls Spark computes each row's size anew from the first null on.
    none = f.array().cast(HEADERS)
    if "headers" not in records.columns:
        return none.alias("headers")
    return f.coalesce(f.col("headers").cast(HEADERS), none).alias("headers")


def needs_headers(plan: Plan) -> bool:
    """Whether anything can see the headers of what is read: counts drop them, and functions are not given them."""
    if windowed_counts_by_topic(plan.topology):
        return False
    return not plan.only_counts or any(_has_expressions(node) for node in plan.nodes)


def _has_expressions(node: Node) -> bool:
    held = [getattr(node.operator, field.name) for field in fields(node.operator)]
    functions = [one for value in held for one in (value if isinstance(value, (list, tuple)) else [value])]
    return any(isinstance(one, Function) and one.expression is not None for one in functions)


def _first_rows(arrived: DataFrame, plan: Plan, tasks: Tasks, now_ms: int) -> DataFrame:
    """Through Python where stage 0 has work to do, else by columns alone."""
    if windowed_counts_by_topic(plan.topology):
        return arrived.mapInArrow(WindowCountingStage(plan, tasks, now_ms), SCHEMA)
    sources = [
        node
        for node in plan.topology.sources
        if isinstance(node.operator, Source) and not node.operator.internal
    ]
    simple = all(plan.stage_of[node.name] > 0 for node in sources)
    topics = [
        topic for node in sources if isinstance(node.operator, Source) for topic in node.operator.topics
    ]
    if simple and len(topics) == len(set(topics)):
        return _routed(arrived, plan, tasks, sources)
    stage = StatelessStage(plan, tasks, now_ms)
    return arrived.mapInArrow(stage, SCHEMA)


def _routed(arrived: DataFrame, plan: Plan, tasks: Tasks, sources: list[Node]) -> DataFrame:
    from pyspark.sql import functions as f

    by_topic: dict[str, tuple[int, int, int, bool]] = {}
    lanes = plan.topology.source_topics()
    for node in sources:
        assert isinstance(node.operator, Source)
        for topic in node.operator.topics:
            by_topic[topic] = (
                plan.stage_of[node.name],
                plan.index(node),
                lanes.index(topic),
                is_global(node),
            )
    table = f.create_map(
        *[
            part
            for topic, facts in by_topic.items()
            for part in (
                f.lit(topic),
                f.struct(*[f.lit(fact).alias(f"f{n}") for n, fact in enumerate(facts)]),
            )
        ]
    )
    known = arrived.withColumn("way", table[f.col("topic")])
    if any(facts[3] for facts in by_topic.values()):
        everyone = f.array(*[f.lit(task) for task in range(tasks.count)])
        alone = f.array(f.col("partition"))
        known = known.withColumn("task", f.explode(f.when(f.col("way.f3"), everyone).otherwise(alone)))
    else:
        known = known.withColumn("task", f.col("partition"))
    groups = f.array(*[f.lit(group) for group in tasks.groups])
    return known.select(
        f.element_at(groups, f.pmod(f.col("task"), f.lit(tasks.count)) + 1).alias("group"),
        f.col("way.f0").alias("stage"),
        f.col("way.f1").alias("dest"),
        "task",
        "topic",
        "key",
        "value",
        "time",
        "headers",
        (f.col("way.f2") * LANES_PER_TOPIC + f.col("partition")).alias("lane"),
        f.col("offset").alias("place"),
        f.lit(0).alias("sub"),
        f.col("time").alias("arrived"),
    )


def _stateful(rows: DataFrame, plan: Plan, number: int, tasks: Tasks, run: str) -> DataFrame:
    from ottla.streams.planner.stateful_stage import StatefulStage

    stage = plan.stages[number]
    timers = any(isinstance(node.operator, Process) for node in stage.nodes)
    return rows.groupBy("group").transformWithStateInPandas(
        StatefulStage(plan, number, tasks, run, uses_timers=timers),
        SCHEMA,
        "append",
        "processingTime" if timers else "none",
    )
