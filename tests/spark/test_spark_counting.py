"""`make spark-kills`: rounds follow one another until a build has enough kills, and only those that held count."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.tally import Build, Tally
from spark.counting import Ended, Round, go_on, run_round

ROUNDS = [Round("first", ()), Round("second", ())]


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    (tmp_path / "source").mkdir()
    return Tally(tmp_path / "kept", Build("0123456789abcdef", "abc"), tmp_path / "source")


def test_rounds_take_turns_until_there_are_enough_kills(tally: Tally) -> None:
    ran: list[str] = []

    def held(each: Round) -> Ended:
        ran.append(each.name)
        return Ended(0, {"driver": 2, "executor": 1, "source broker": 7}, "")

    assert go_on(tally, 5, lambda line: None, ROUNDS, held) == 0
    assert ran == ["first", "second"]
    assert go_on(tally, 9, lambda line: None, ROUNDS, held) == 0
    assert ran == ["first", "second", "first"], "brokers are not counted, and nothing is run again"
    assert tally.totals("spark") == {"driver": 6, "executor": 3, "source broker": 21}


def test_the_kills_of_a_test_that_failed_do_not_count(tally: Tally) -> None:
    ends = [Ended(1, {"driver": 9}, "1 doubled"), Ended(0, {}, "skipped"), Ended(0, {"driver": 9}, "")]
    assert go_on(tally, 9, lambda line: None, ROUNDS, lambda each: ends.pop(0)) == 1
    assert tally.totals("spark") == {"driver": 9}
    assert [bool(entry.failures) for entry in tally.entries("spark")] == [True, True, False]


def test_a_machine_on_which_nothing_holds_is_given_up(tally: Tally) -> None:
    assert go_on(tally, 9, lambda line: None, ROUNDS, lambda each: Ended(2, {}, "no Java")) == 2
    assert len(tally.entries("spark")) == 3


def test_a_round_is_a_test_that_says_what_it_killed(tmp_path: Path) -> None:
    file = tmp_path / "test_kills.py"
    file.write_text(
        "from spark.killing import report_kills\n"
        "def test_kills():\n"
        "    report_kills({'Python worker': 2, 'driver': 1, 'failed runs': 4})\n"
    )
    ended = run_round(Round("one", (str(file), "-c", str(Path(__file__).parents[2] / "pyproject.toml"))))
    assert ended.code == 0, ended.output
    assert ended.killed == {"python worker": 2, "driver": 1}
