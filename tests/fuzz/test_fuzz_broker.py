"""A short run of `make fuzz` in the tests."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fuzz import hostile_peer
from fuzz.counting import ALL_TARGETS
from fuzz.harness import run_target
from fuzz.run import fuzz, fuzzed_broker
from fuzz.targets import Target


@pytest.mark.parametrize("target", ALL_TARGETS, ids=lambda target: target.name)
def test_bytes_of_strangers_give_errors_of_our_own(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    # What parsers report of damaged records would fill the memory of the run.
    caplog.set_level(logging.CRITICAL, logger="ottla")
    report = run_target(target, 250 * target.share, seed=7)
    assert report.cases == 250 * target.share


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 20), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_controller_among_liars_keeps_its_mind(caplog: pytest.LogCaptureFixture, seeds: range) -> None:
    caplog.set_level("CRITICAL")
    assert sum(hostile_peer.run(seed, 30, dynamic=seed % 2 == 1).lies for seed in seeds) > 25 * len(seeds)


@pytest.mark.parametrize(
    "count", [pytest.param(1_000, id="short"), pytest.param(10_000, id="long", marks=pytest.mark.slow)]
)
def test_mutated_frames_leave_the_broker_serving(tmp_path: Path, count: int) -> None:
    with fuzzed_broker(tmp_path / "data") as (broker, controller):
        fuzz(broker, count, count, controller)
