"""`make spark-kills`: tests that kill Spark's processes, until the tally of a build has enough kills with exact output.

A round is one test in its long form. It counts when the test has held. One that is interrupted does not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.testing.tally import SPARK_VICTIMS, Tally, TallyError, open_tally
from spark.killing import KILLS_FILE

_HERE = Path(__file__).parent
_MOST_FAILED = 3
"""Rounds in a row."""


@dataclass(frozen=True, slots=True)
class Round:
    """One test and how much it does."""

    name: str
    words: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


_FAULTS = {"OTTLA_FAULT_RECORDS": "100000", "OTTLA_FAULT_KILLS": "10"}
ROUNDS = (
    Round("streams", (str(_HERE / "test_pipeline_faults.py"), "-k", "ottla-tallies"), _FAULTS),
    Round("dstream", (str(_HERE / "test_pipeline_dstream_recovery.py"),), {"OTTLA_DSTREAM_KILLS": "6"}),
    Round("counts", (str(_HERE / "test_pipeline_faults.py"), "-k", "ottla-counts"), _FAULTS),
    Round(
        "mirror",
        (str(_HERE / "test_mirror_faults.py"),),
        {"OTTLA_MIRROR_GB": "1", "OTTLA_MIRROR_KILLS": "6"},
    ),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a round ended."""

    code: int
    killed: dict[str, int]
    output: str


def run_round(each: Round) -> Ended:
    """Run pytest in a process of its own, which an interrupt ends in order: it has a cluster to stop."""
    with tempfile.TemporaryDirectory(prefix="ottla-spark-kills-") as directory:
        kills = Path(directory) / "kills"
        log = Path(directory) / "log"
        environment = {**os.environ, **each.settings, KILLS_FILE: str(kills)}
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *each.words]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment, start_new_session=True
            )
            try:
                code = process.wait()
            except BaseException:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(180)
                process.kill()
                raise
        killed: Counter[str] = Counter()
        if kills.exists():
            for line in kills.read_text().splitlines():
                killed.update(json.loads(line))
        return Ended(code, dict(killed), log.read_text(errors="replace"))


def go_on(
    tally: Tally,
    wanted: int,
    say: Callable[[str], None],
    rounds: Sequence[Round] = ROUNDS,
    run: Callable[[Round], Ended] = run_round,
) -> int:
    """Run rounds until there are so many kills; returns the exit code."""
    failed = [entry for entry in tally.entries("spark") if entry.failures]
    in_a_row = 0
    number = len(tally.entries("spark"))
    for each in itertools.islice(itertools.cycle(rounds), number, None):
        done = tally.totals("spark")
        killed = sum(done.get(what, 0) for what in SPARK_VICTIMS)
        if killed >= wanted:
            break
        say(f"{killed:.0f} of {wanted} kills; next: {each.name}")
        began = time.monotonic()
        ended = run(each)
        held = ended.code == 0 and bool(ended.killed)
        failures = [] if held else [f"{each.name} ended with {ended.code}: {ended.output[-1500:]}"]
        number += 1
        tally.add(
            "spark",
            f"{each.name}-{number}",
            ended.killed if held else {},
            failures=failures,
            seconds=time.monotonic() - began,
        )
        say(
            f"{each.name}: {ended.killed if held else ended.output[-4000:]}, {time.monotonic() - began:.0f} s"
        )
        failed += tally.entries("spark")[-1:] if failures else []
        in_a_row = in_a_row + 1 if failures else 0
        if in_a_row >= _MOST_FAILED:
            say(f"{in_a_row} rounds in a row failed: giving up")
            return 2
    return int(bool(failed))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m spark.counting", description=__doc__)
    words.add_argument("--kills", type=int, default=100)
    words.add_argument(
        "--only", help=f"rounds, separated by commas: {', '.join(each.name for each in ROUNDS)}"
    )
    given = words.parse_args()
    names = given.only.split(",") if given.only else [each.name for each in ROUNDS]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(go_on(open_tally(), given.kills, _say, [each for each in ROUNDS if each.name in names]))
    except TallyError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _say("interrupted: the round that ran is not counted")
        sys.exit(130)


if __name__ == "__main__":
    main()
