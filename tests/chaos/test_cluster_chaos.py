"""Short fixed forms of `make chaos`: three real nodes under load while things are done to them, and no anomaly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.testing.chaos.run import Plan, Verdict, possible, run


def suffer(directory: Path, kinds: Sequence[str], cycles: int) -> Verdict:
    kinds = possible(kinds)
    if not kinds:
        pytest.skip("this machine allows none of these faults")
    plan = Plan(
        directory,
        kinds,
        # It is the cycles that end it.
        seconds=400,
        cycles=cycles,
        seed=cycles,
        mixed=0.0,
        pauses_s=(1.0, 3.0),
        cuts_s=(1.5, 4.0),
        between=40,
    )
    verdict = run(plan)
    assert verdict.anomalies == [], verdict.anomalies[:5]
    assert verdict.acknowledged > 0 and verdict.transactions["ok"] > 0
    return verdict


@pytest.mark.slow
def test_kills_of_one_two_and_all(tmp_path: Path) -> None:
    verdict = suffer(tmp_path / "run", ["kill", "kill-two", "kill-all"], cycles=5)
    assert verdict.faults.total() == 5


@pytest.mark.slow
def test_pauses_and_partitions(tmp_path: Path) -> None:
    verdict = suffer(tmp_path / "run", ["pause", "cut-leader", "cut-one-way"], cycles=4)
    assert verdict.faults.total() >= 1


@pytest.mark.slow
def test_a_disk_that_fails_controllers_that_come_and_go_and_features_that_go_down_and_up(
    tmp_path: Path,
) -> None:
    verdict = suffer(tmp_path / "run", ["broken-disk", "voters", "features"], cycles=3)
    assert verdict.faults["voters"] == verdict.faults["features"] == 1


@pytest.mark.slow
def test_wrong_clocks_and_disks_that_are_slow_or_full(tmp_path: Path) -> None:
    verdict = suffer(tmp_path / "run", ["clock-jump", "clock-drift", "slow-disk", "full-disk"], cycles=4)
    assert verdict.faults.total() == 4
