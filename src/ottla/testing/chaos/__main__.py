"""`python -m ottla.testing.chaos --minutes 5`: faults on a cluster of real processes, and a check."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from ottla.testing.chaos.counting import go_on
from ottla.testing.chaos.faults import FAULTS
from ottla.testing.chaos.run import Plan, Verdict, possible, run
from ottla.testing.checks.checker import check
from ottla.testing.checks.history import read_history
from ottla.testing.tally import TallyError, open_tally

_WANTED: Final = {"kills": 1000, "pauses": 500, "partitions": 500}


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m ottla.testing.chaos", description=__doc__)
    words.add_argument(
        "--minutes", type=float, help="how long faults go on: 5, or 10 in each run with --continue"
    )
    words.add_argument("--cycles", type=int, help="how many faults at most")
    words.add_argument(
        "--faults", help=f"some of {', '.join(FAULTS)}; all that this machine allows if left out"
    )
    words.add_argument("--mixed", type=float, default=0.15, help="how often two come at once, 0 to 1")
    words.add_argument("--nodes", type=int, default=3)
    words.add_argument(
        "--longest-pause", type=float, default=30.0, help="of a process or a network, in seconds"
    )
    words.add_argument("--seed", type=int, default=int(time.time()))
    words.add_argument("--keep", type=Path, default=Path("chaos-runs"), help="where histories are kept")
    words.add_argument(
        "--old-source", type=Path, help="the src directory of an earlier version, for the fault upgrade"
    )
    words.add_argument("--check", type=Path, help="check this history again instead")
    words.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="run until this build has had so many, and count them:",
    )
    for name, count in _WANTED.items():
        words.add_argument(
            f"--{name}", type=int, default=count, help=f"with --continue, {count:,} if left out"
        )
    given = words.parse_args()
    if given.check:
        anomalies = check(read_history(given.check))
        for anomaly in anomalies:
            _say(f"{anomaly.kind}: {anomaly.what}")
        sys.exit(bool(anomalies))
    wanted = given.faults.split(",") if given.faults else list(FAULTS)
    kinds = possible(wanted, upgrades=given.old_source is not None)
    for kind in sorted(set(wanted) - set(kinds)):
        _say(f"skipped, because this machine does not allow it: {kind}")
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())
    if given.go_on:
        sys.exit(_go_on(given, kinds, enough))
    directory = given.keep / f"{time.strftime('%Y%m%d-%H%M%S')}-{given.seed}"
    plan = Plan(
        directory,
        kinds,
        seconds=(given.minutes or 5.0) * 60,
        cycles=given.cycles,
        seed=given.seed,
        nodes=given.nodes,
        mixed=given.mixed,
        pauses_s=(1.0, given.longest_pause),
        cuts_s=(2.0, given.longest_pause),
        old_source=given.old_source,
    )
    _say(f"seed {given.seed}, history in {directory}")
    verdict = run(plan, _say, enough)
    _say(table(verdict))
    sys.exit(bool(verdict.anomalies))


def _go_on(given: argparse.Namespace, kinds: list[str], enough: threading.Event) -> int:
    """Go on with the faults of this build; an interrupt ends the run in order."""
    plan = Plan(
        given.keep,
        kinds,
        seconds=(given.minutes or 10.0) * 60,
        seed=given.seed,
        nodes=given.nodes,
        mixed=given.mixed,
        pauses_s=(1.0, given.longest_pause),
        cuts_s=(2.0, given.longest_pause),
    )
    try:
        return go_on(plan, open_tally(), {name: getattr(given, name) for name in _WANTED}, _say, enough)
    except TallyError as error:
        _say(str(error))
        return 2


def table(verdict: Verdict) -> str:
    """The summary of a run."""
    rows = [(f"{kind} cycles", str(count)) for kind, count in sorted(verdict.faults.items())]
    rows += [
        ("records sent", str(verdict.sends)),
        ("acknowledged", str(verdict.acknowledged)),
        *((f"transactions {outcome}", str(count)) for outcome, count in sorted(verdict.transactions.items())),
        ("records polled", str(verdict.polled)),
        ("sent twice by a client's new epoch", str(verdict.excused)),
        ("longest time without a write", f"{verdict.longest_gap_s:.1f} s"),
        ("run time", f"{verdict.seconds:.0f} s"),
        ("anomalies", str(len(verdict.anomalies))),
    ]
    rows += [
        (f"  {kind}", str(count)) for kind, count in Counter(each.kind for each in verdict.anomalies).items()
    ]
    lines = [f"  {what:36}{value:>12}" for what, value in rows]
    lines += [f"  ! {anomaly.kind}: {anomaly.what}" for anomaly in verdict.anomalies[:20]]
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
