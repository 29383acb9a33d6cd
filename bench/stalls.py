"""Stalls of the event loops of all Ottla brokers in a run, and the moments in which the bench itself paused a process.

Each process writes what its watchdog found into one directory when it stops (`OTTLA_LOOP_WATCHDOG`). What a broker
that was killed has found is lost.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WATCHDOG: Final = "OTTLA_LOOP_WATCHDOG"
"""The environment variable that names a file, or a directory for a file of each process."""

_RUNNER: Final = "/asyncio/runners.py:"
_NO_CALLBACK: Final = (
    "no callback: it waited for the interpreter, which another thread had, or for the system"
)


@dataclass(frozen=True, slots=True)
class Stall:
    """An event loop was held for `seconds` until `at`, on the monotonic clock."""

    at: float
    seconds: float
    place: str = ""
    """The innermost call of the loop at one moment of it, if that was taken."""
    ran_s: float = 0.0
    """The CPU time of its thread meanwhile."""

    @property
    def begin(self) -> float:
        return self.at - self.seconds


class Holding:
    """Pauses processes by a signal, and records when: their loops do not turn meanwhile."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._times: dict[int, list[tuple[float, float]]] = {}

    def hold(self, pid: int) -> None:
        if pid not in self._since:
            self._since[pid] = time.monotonic()
            os.kill(pid, signal.SIGSTOP)

    def release(self, pid: int) -> None:
        since = self._since.pop(pid, None)
        if since is not None:
            os.kill(pid, signal.SIGCONT)
            self._times.setdefault(pid, []).append((since, time.monotonic()))

    def was_held(self, pid: int, stall: Stall) -> bool:
        return any(begin <= stall.at and stall.begin <= end for begin, end in self._times.get(pid, ()))


HOLDING: Final = Holding()
"""What this run pauses."""


def found(directory: Path, holding: Holding = HOLDING) -> list[Stall]:
    """The stalls of all processes that have stopped, except while the bench had paused them."""
    return [
        stall
        for file in sorted(directory.glob("*.json"))
        for stall in _of(json.loads(file.read_text()))
        if not holding.was_held(int(file.stem), stall)
    ]


def _of(findings: dict[str, Any]) -> list[Stall]:
    return [
        _with_place(each["at"], each["seconds"], each["ran_s"], findings["stacks"])
        for each in findings["stalls"]
    ]


def _with_place(at: float, seconds: float, ran_s: float, stacks: list[dict[str, Any]]) -> Stall:
    within = [each["frames"][-1] for each in stacks if at - seconds <= each["at"] <= at and each["frames"]]
    place = within[-1] if within else ""
    return Stall(at, seconds, _NO_CALLBACK if _RUNNER in place else place, ran_s)
