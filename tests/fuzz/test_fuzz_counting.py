"""`make fuzz CONTINUE=1`: each piece of a build runs once."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path

import pytest

from fuzz import counting
from fuzz.counting import ALL_TARGETS, Piece, go_on, pieces
from fuzz.harness import feed
from fuzz.targets import Target
from ottla.testing.tally import Build, Tally


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    (tmp_path / "source").mkdir()
    return Tally(tmp_path / "kept", Build("0123456789abcdef", "abc"), tmp_path / "source")


def test_pieces_have_at_least_the_cases_asked_for_in_the_order_of_their_seeds() -> None:
    whole = pieces(10_000_000, ALL_TARGETS)
    shares = {target.name: target.share for target in ALL_TARGETS}
    cases = sum(counting.CASES_PER_SHARE * shares[piece.target] for piece in whole)
    assert 10_000_000 <= cases < 10_500_000
    assert [piece.seed for piece in whole] == sorted(piece.seed for piece in whole)
    assert len(set(whole)) == len(whole)
    assert pieces(1000, ALL_TARGETS) == whole[: len(ALL_TARGETS)], "a small count is the begin of a large one"


def test_what_ran_is_not_run_again_and_what_failed_is_said_again(
    tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "CASES_PER_SHARE", 20)
    wanted = [Piece(name, seed) for seed in (1, 2) for name in ("JAAS", "breaks")]
    ran: list[str] = []

    def breaks(seed: int) -> int:
        if seed == 2:
            raise AssertionError("it fell over")
        return 7

    others = {"breaks": breaks}
    assert go_on(wanted[:2], tally, others, 1, ran.append) == 0
    assert tally.totals("fuzz") == {"JAAS": 120, "breaks": 7}
    assert go_on(wanted, tally, others, 1, ran.append) == 1
    assert tally.keys("fuzz") == {"JAAS/1", "breaks/1", "JAAS/2", "breaks/2"}
    assert tally.totals("fuzz") == {"JAAS": 240, "breaks": 7}
    ran.clear()
    assert go_on(wanted, tally, others, 1, ran.append) == 1
    assert ran[0].startswith("4 of 4 pieces are in")
    assert ran[1:] == ["BROKEN breaks/2: AssertionError('it fell over')"]


@pytest.mark.parametrize("target", ALL_TARGETS, ids=lambda target: target.name)
def test_an_input_that_is_not_damaged_is_read(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    """A target whose inputs are refused at their beginning would try nothing behind it."""
    caplog.set_level(logging.CRITICAL, logger="ottla")
    rng = random.Random(5)
    outcomes = Counter(feed(target, rng, bytes(target.good(rng))) for _ in range(20))
    assert outcomes["read"] >= 5, outcomes


def test_the_cases_of_a_seed_are_the_same_whatever_ran_before() -> None:
    target = next(each for each in ALL_TARGETS if each.name == "Connect REST")
    first = counting.run_target(target, 15, 3)
    counting.run_target(target, 7, 4)
    assert counting.run_target(target, 15, 3).outcomes == first.outcomes
