"""One strategy is chosen when a plan is made, and the manifest keeps its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from ottla.streams import StreamsBuilder, col, tumbling
from ottla.streams.planner.manifest import Manifest
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.stages import make_plan
from ottla.streams.planner.strategies import choose_strategy


def expressions() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in", value_serde="json").filter(col("value.amount") > 10).to("out")
    return b


def words() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in").group_by(lambda value: value).count(store="counts").to_stream().to("out")
    return b


def windows() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in").group_by_key().windowed_by(tumbling(10)).count(store="counts").to_stream().to("out")
    return b


def table() -> StreamsBuilder:
    b = StreamsBuilder()
    b.table("in", store="rows").to_stream().to("out")
    return b


def function() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in").map_values(str.upper).to("out")
    return b


def plan_of(builder: StreamsBuilder, **options: Strategy) -> Plan:
    plan = make_plan(builder.build())
    choose_strategy(plan, **options)
    return plan


@pytest.mark.parametrize(
    ("make", "strategy"),
    [
        (expressions, Strategy.NATIVE),
        (words, Strategy.COUNTS),
        (windows, Strategy.WINDOWED_COUNTS),
        (table, Strategy.ROUTED),
        (function, Strategy.GENERAL),
    ],
)
def test_the_first_strategy_that_applies_is_chosen(
    make: Callable[[], StreamsBuilder], strategy: Strategy
) -> None:
    plan = plan_of(make())
    assert plan.strategy is strategy
    assert bool(plan.plain_counts) == (strategy is Strategy.COUNTS)
    assert bool(plan.windowed_counts) == (strategy is Strategy.WINDOWED_COUNTS)


def test_counts_in_stores_of_their_own_go_on_with_another_strategy() -> None:
    plan = plan_of(words(), without=Strategy.COUNTS)
    assert plan.strategy is Strategy.GENERAL
    assert plan.plain_counts == []


def test_the_manifest_keeps_the_strategy(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    Manifest.of("app", plan_of(windows()), Tasks.spread(1, 2)).write(path)
    assert json.loads(path.read_text())["strategy"] == "windowed-counts"
    known = Manifest.read(path)
    assert known is not None and known.strategy == "windowed-counts"


@pytest.mark.parametrize("make", [words, windows])
def test_a_manifest_without_a_strategy_is_read(make: Callable[[], StreamsBuilder], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    now = Manifest.of("app", plan_of(make()), Tasks.spread(1, 2))
    now.write(path)
    held = json.loads(path.read_text())
    del held["strategy"]
    path.write_text(json.dumps(held))
    known = Manifest.read(path)
    assert known is not None and known.strategy is None
    assert known.keeps_plain_counts == (make is words)
    known.check(now)
