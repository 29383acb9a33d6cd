"""Windowed counts: every topic goes straight to a count in windows. Records are added up where they are read.

Far fewer rows are shuffled then, and the stage with state looks at counts instead of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.planner.count_patterns import windowed_counts_by_topic
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.rows import SCHEMA, Tasks
from ottla.streams.planner.spark_frames import (
    FINISH_ROWS,
    Arriving,
    now_ms,
    run_stateful_stages,
)
from ottla.streams.planner.window_counting_stage import WindowCountingStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.small_batches import Finish


def applies(plan: Plan) -> bool:
    """Whether all that is read goes to windowed counts alone."""
    return bool(windowed_counts_by_topic(plan.topology))


def needs_headers(_: Plan) -> bool:
    """Counts drop headers."""
    return False


def build(records: Arriving, plan: Plan, tasks: Tasks) -> tuple[DataFrame, Finish]:
    """The rows of the last stage, and the step that makes records for the sink of them."""
    rows = records.through(WindowCountingStage(plan, tasks, now_ms()), SCHEMA, with_headers=False)
    return run_stateful_stages(rows, plan, tasks), FINISH_ROWS
