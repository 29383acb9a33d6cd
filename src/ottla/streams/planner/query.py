"""Builds the query: records as Spark's Kafka source gives them in, records for the sink out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.errors import TopologyError
from ottla.streams.graph.topology import Topology
from ottla.streams.loading import own_classes, pickled_by_value
from ottla.streams.planner.foreign_key_replicas import resolved_tables, with_replicas
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.spark_frames import Arriving, ArrivingFrame
from ottla.streams.planner.stages import make_plan
from ottla.streams.planner.strategies import STRATEGIES, choose_strategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.small_batches import Finish


def plan_for_spark(topology: Topology) -> Plan:
    """The stages of a topology and the strategy that runs them; TopologyError if Spark cannot run it."""
    plan = make_plan(with_replicas(topology, resolved_tables(topology)))
    choose_strategy(plan)
    plan.classes = own_classes()
    check_picklable(plan)
    return plan


def check_picklable(plan: Plan) -> None:
    """Names the function that cannot be sent to Spark's workers, before Spark fails without a name."""
    for node in plan.nodes:
        try:
            pickled_by_value(node.operator)
        except Exception as problem:
            raise TopologyError(
                f"the function of {node.name} cannot be sent to Spark's workers: {problem}. "
                "Open connections, files and locks inside the function instead of bringing them along"
            ) from problem


def build(records: DataFrame, plan: Plan, tasks: Tasks) -> DataFrame:
    """From a frame with Kafka's columns to one with topic, key, value, timestamp, headers and partition."""
    frame, finish = build_for_sink(ArrivingFrame(records), plan, tasks)
    return frame if finish is None else finish.by_tasks(frame)


def build_for_sink(records: Arriving, plan: Plan, tasks: Tasks) -> tuple[DataFrame, Finish | None]:
    """A frame for the sink, and the last step that the sink takes itself, where the strategy has one."""
    return STRATEGIES[plan.strategy].build(records, plan, tasks)


def output_mode(plan: Plan) -> str:
    """Spark's output mode for the frame of a plan."""
    return STRATEGIES[plan.strategy].output_mode


def needs_headers(plan: Plan) -> bool:
    """Whether any part of the plan can see the headers of what is read."""
    return STRATEGIES[plan.strategy].needs_headers(plan)
