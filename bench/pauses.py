"""The machine's own pauses: moments in which a core ran nothing, though a thread on it was due.

`python -m bench.pauses FILE` has a thread on each core that sleeps for a few milliseconds at a time, ahead of all
others (SCHED_FIFO) where that is allowed. What wakes it up late is the machine: its host, or its kernel. At the end,
by SIGTERM, the pauses go to the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_STEP_S = 0.005
_WORTH_KEEPING_S = 0.005
_PRIORITY = 50


@dataclass(frozen=True, slots=True)
class Pause:
    """A core ran nothing from `begin` to `end`, on the monotonic clock."""

    begin: float
    end: float


class Pauses:
    """The pauses that were found. `ahead`: the threads had a real-time priority, so other processes are no pause."""

    def __init__(self, found: Sequence[Pause] = (), *, ahead: bool = True) -> None:
        self.found = found
        self.ahead = ahead

    def within(self, begin: float, end: float) -> float:
        """The seconds of a time in which at least one core paused."""
        total, reached = 0.0, begin
        for pause in sorted(self.found, key=lambda each: each.begin):
            start, stop = max(pause.begin, reached), min(pause.end, end)
            if stop > start:
                total += stop - start
                reached = stop
        return total

    def longest(self, begin: float, end: float) -> float:
        """The seconds of the longest pause that ended within a time."""
        return max((each.end - each.begin for each in self.found if begin <= each.end <= end), default=0.0)


@contextlib.contextmanager
def measured(file: Path) -> Iterator[Pauses]:
    """Measure meanwhile. The pauses are there afterwards."""
    pauses = Pauses()
    running = subprocess.Popen([sys.executable, "-m", "bench.pauses", str(file)])
    try:
        yield pauses
    finally:
        running.terminate()
        running.wait(30)
        if file.exists():
            written = json.loads(file.read_text())
            pauses.ahead = written["ahead"]
            pauses.found = [Pause(*each) for each in written["pauses"]]


def _watch(core: int, found: list[tuple[float, float]], refused: list[int]) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError:
        refused.append(core)
    while True:
        due = time.monotonic() + _STEP_S
        time.sleep(_STEP_S)
        now = time.monotonic()
        if now - due >= _WORTH_KEEPING_S:
            found.append((due, now))


def main() -> None:
    found: list[tuple[float, float]] = []
    refused: list[int] = []
    # Blocked before the threads start, so that none of them takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    for core in sorted(os.sched_getaffinity(0)):
        threading.Thread(target=_watch, args=(core, found, refused), daemon=True).start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    Path(sys.argv[1]).write_text(json.dumps({"ahead": not refused, "pauses": found}))


if __name__ == "__main__":
    main()
