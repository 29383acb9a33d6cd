"""The strategies in the order in which they are tried. One is chosen when the plan is made, and kept in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.streams.planner.count_patterns import plain_count_nodes, windowed_counts_by_topic
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.spark_frames import Arriving
from ottla.streams.planner.strategies import counts, general, native, routed, windowed_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.small_batches import Finish


@dataclass(frozen=True, slots=True)
class StrategyFunctions:
    """The functions of a strategy's module."""

    applies: Callable[[Plan], bool]
    build: Callable[[Arriving, Plan, Tasks], tuple[DataFrame, Finish | None]]
    """A frame, and the step that makes records for the sink of it, where one is left."""
    needs_headers: Callable[[Plan], bool] = lambda _: True
    output_mode: str = "append"
    """Spark's output mode for the frame that `build` returns."""


STRATEGIES: Final[dict[Strategy, StrategyFunctions]] = {
    Strategy.NATIVE: StrategyFunctions(native.applies, native.build),
    Strategy.COUNTS: StrategyFunctions(counts.applies, counts.build, counts.needs_headers, "update"),
    Strategy.WINDOWED_COUNTS: StrategyFunctions(
        windowed_counts.applies, windowed_counts.build, windowed_counts.needs_headers
    ),
    Strategy.ROUTED: StrategyFunctions(routed.applies, routed.build),
    Strategy.GENERAL: StrategyFunctions(general.applies, general.build),
}


def choose_strategy(plan: Plan, *, without: Strategy | None = None) -> None:
    """Sets the plan's strategy to the first one that applies, and keeps what that strategy needs to know."""
    plan.strategy = next(
        strategy for strategy, has in STRATEGIES.items() if strategy is not without and has.applies(plan)
    )
    plan.plain_counts = plain_count_nodes(plan.topology) if plan.strategy is Strategy.COUNTS else []
    plan.windowed_counts = (
        windowed_counts_by_topic(plan.topology) if plan.strategy is Strategy.WINDOWED_COUNTS else {}
    )
