"""General: stage 0 in Python workers, then the stages with state. It applies to every topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import SCHEMA, Tasks
from ottla.streams.planner.spark_frames import (
    Arriving,
    finished_records,
    now_ms,
    run_stateful_stages,
)
from ottla.streams.planner.stateless_stage import StatelessStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def applies(_: Plan) -> bool:
    """Always: it is tried last."""
    return True


def build(records: Arriving, plan: Plan, tasks: Tasks) -> DataFrame:
    """Records for the sink from records as they were read."""
    rows = records.through(StatelessStage(plan, tasks, now_ms()), SCHEMA, with_headers=True)
    return finished_records(run_stateful_stages(rows, plan, tasks))
