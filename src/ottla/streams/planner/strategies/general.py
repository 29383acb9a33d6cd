"""General: stage 0 in Python workers, then the stages with state. It applies to every topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import SCHEMA, Tasks
from ottla.streams.planner.spark_frames import (
    FINISH_ROWS,
    Arriving,
    now_ms,
    run_stateful_stages,
)
from ottla.streams.planner.stateless_stage import StatelessStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.small_batches import Finish


def applies(_: Plan) -> bool:
    """Always: it is tried last."""
    return True


def build(records: Arriving, plan: Plan, tasks: Tasks) -> tuple[DataFrame, Finish]:
    """The rows of the last stage, and the step that makes records for the sink of them."""
    rows = records.through(StatelessStage(plan, tasks, now_ms()), SCHEMA, with_headers=True)
    return run_stateful_stages(rows, plan, tasks), FINISH_ROWS
