"""`make sim CONTINUE=1`: the seeds of a build are counted, each once."""

import os
import subprocess
import sys

import pytest

from ottla.testing.sim.__main__ import Limits, _clocked, _go_on
from ottla.testing.sim.plan import drawn
from ottla.testing.sim.world import Result
from ottla.testing.tally import Build, Tally


def simulate(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "ottla.testing.sim", "--continue", "--jobs", "1", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OTTLA_FAULT_TALLY": str(folder)},
    )


@pytest.fixture
def tally(tmp_path):
    (tmp_path / "source").mkdir()
    return Tally(tmp_path / "kept", Build("0123456789abcdef", "abc"), tmp_path / "source")


def test_only_seeds_that_are_not_counted_run_and_a_failure_stays(tally, monkeypatch, capsys):
    ran = []

    def results(plans, jobs):
        for plan in plans:
            ran.append(plan.seed)
            yield Result(plan, 0, 1, 1.0, ["lost write: p0/3"] if plan.seed == 2 else [], acknowledged=5), 0.5

    monkeypatch.setattr("ottla.testing.sim.__main__._results", results)
    plans = [drawn(seed) for seed in range(1, 6)]
    limits = Limits(1, float("inf"), until_failure=False)
    assert _go_on(plans[:1], tally, limits) == 0
    assert _go_on(plans[:3], tally, limits) == 1
    assert _go_on(plans, tally, limits) == 1, "a failure before counts"
    assert ran == [1, 2, 3, 4, 5]
    assert tally.totals("sim")["seeds"] == 5
    assert "seed 2 failed before: lost write: p0/3" in capsys.readouterr().out


def test_a_seed_that_breaks_the_simulator_is_a_finding(monkeypatch):
    def breaks(plan):
        raise ZeroDivisionError("in the simulator")

    monkeypatch.setattr("ottla.testing.sim.__main__.run", breaks)
    result, _ = _clocked(drawn(7))
    assert result.plan.seed == 7
    assert result.violations == ["the simulator broke off: ZeroDivisionError('in the simulator')"]


def test_an_endless_seed_is_a_finding(monkeypatch):
    def endless(plan):
        while True:
            pass

    monkeypatch.setattr("ottla.testing.sim.__main__.run", endless)
    monkeypatch.setattr("ottla.testing.sim.__main__._MOST_CPU_S", 0.05)
    result, _ = _clocked(drawn(7))
    assert "more than 0.05 s of CPU" in result.violations[0]


def test_changed_plans_are_not_counted(tmp_path):
    done = simulate(tmp_path, "--faults", "kill")
    assert done.returncode == 2 and "--continue counts whole seeds only" in done.stderr


@pytest.mark.slow
def test_a_count_goes_on_where_it_was_interrupted(tmp_path):
    first = simulate(tmp_path, "--seeds", "3", "--minutes", "0")
    assert first.returncode == 0 and "1 seeds in" in first.stdout, first.stdout + first.stderr
    second = simulate(tmp_path, "--seeds", "3")
    assert "1 of 3 seeds are in" in second.stdout and "2 seeds in" in second.stdout, second.stdout
