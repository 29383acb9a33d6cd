"""`make chaos CONTINUE=1`: runs follow one another until a build has enough faults of each class."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from ottla.testing.chaos.counting import go_on, kinds_and_weights, lacking
from ottla.testing.chaos.faults import FAULTS
from ottla.testing.chaos.run import Plan, Verdict
from ottla.testing.checks.seen import Anomaly
from ottla.testing.tally import Build, Tally

WANTED = {"kills": 10, "pauses": 4, "partitions": 6}


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    (tmp_path / "source").mkdir()
    return Tally(tmp_path / "kept", Build("0123456789abcdef", "abc"), tmp_path / "source")


def verdict(plan: Plan, faults: dict[str, int], *anomalies: Anomaly) -> Verdict:
    return Verdict(
        Counter(faults), 9, 8, Counter(ok=2), 30, 1.0, plan.directory / "history", 0.5, 0, list(anomalies)
    )


class Runs:
    """Stands in for real runs: each gives two faults of each kind that it was asked for."""

    def __init__(self, *anomalies: Anomaly) -> None:
        self.plans: list[Plan] = []
        self._anomalies = anomalies

    def __call__(self, plan: Plan, say: object, enough: threading.Event) -> Verdict:
        self.plans.append(plan)
        plan.directory.mkdir(parents=True)
        return verdict(plan, dict.fromkeys(plan.kinds, 2), *self._anomalies)


def count(tally: Tally, folder: Path, runs: Runs, enough: threading.Event | None = None) -> int:
    plan = Plan(folder / "runs", list(FAULTS), seed=3)
    return go_on(plan, tally, WANTED, lambda line: None, enough or threading.Event(), runs)


def test_runs_go_on_until_nothing_is_lacking_and_are_not_repeated(tally: Tally, tmp_path: Path) -> None:
    runs = Runs()
    assert count(tally, tmp_path, runs) == 0
    assert lacking(tally, WANTED) == {}
    assert len(runs.plans) == 2, "three kinds of kills, twice in each run"
    assert not [each.directory for each in runs.plans if each.directory.exists()], (
        "good histories are removed"
    )
    assert len({each.seed for each in runs.plans}) == 2
    again = Runs()
    assert count(tally, tmp_path, again) == 0
    assert again.plans == []


def test_a_class_that_is_complete_is_not_run_any_more(tally: Tally) -> None:
    tally.add("chaos", "before", {"kill": 7, "kill-all": 3, "pause-long": 1})
    left = lacking(tally, WANTED)
    assert left == {"pauses": 3, "partitions": 6}
    kinds, weights = kinds_and_weights(left, list(FAULTS), random.Random(1))
    assert not set(kinds) & {"kill", "kill-two", "kill-all"}
    assert weights["pause"] + weights["pause-long"] == pytest.approx(3)
    assert sum(weights[kind] for kind in kinds if kind.startswith("cut") or kind == "flap") == pytest.approx(
        6
    )
    assert len(kinds) == 2 + 6 + 4, "and four others"


def test_an_anomaly_is_kept_with_its_history(tally: Tally, tmp_path: Path) -> None:
    runs = Runs(Anomaly("lost write", "send-1/7"))
    assert count(tally, tmp_path, runs) == 1
    assert all(each.directory.exists() for each in runs.plans)
    assert tally.entries("chaos")[0].failures == ("lost write: send-1/7",)
    assert count(tally, tmp_path, Runs()) == 1, "it stays a failure of this build"


def test_an_interrupted_run_counts_and_is_the_last(tally: Tally, tmp_path: Path) -> None:
    enough = threading.Event()

    class Interrupted(Runs):
        def __call__(self, plan: Plan, say: object, stop: threading.Event) -> Verdict:
            stop.set()
            return verdict(plan, {"kill": 1})

    assert count(tally, tmp_path, Interrupted(), enough) == 0
    assert tally.totals("chaos")["kill"] == 1


def test_a_machine_without_network_name_spaces_ends_the_count(tally: Tally, tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(tmp_path / "runs", ["kill", "pause"], seed=3)
    assert go_on(plan, tally, WANTED, said.append, threading.Event(), Runs()) == 2
    assert said == ["partitions are lacking, and cannot be had here: see the faults that are skipped"]


def test_runs_without_faults_end_the_count(tally: Tally, tmp_path: Path) -> None:
    class Broken(Runs):
        def __call__(self, plan: Plan, say: object, stop: threading.Event) -> Verdict:
            self.plans.append(plan)
            raise OSError("no space left on device")

    runs = Broken()
    assert count(tally, tmp_path, runs) == 2
    assert len(runs.plans) == 3
    assert "no space left" in tally.entries("chaos")[-1].failures[0]
