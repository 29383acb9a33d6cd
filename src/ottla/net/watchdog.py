"""Measures how long the event loop is blocked. Off unless the benchmark or an operator turns it on.

A timer that fires late shows that something blocked the loop. The measure is that delay, less the time in which the
thread was ready to run but had no core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

_INTERVAL_S = 0.01
_WORTH_KEEPING_S = 0.02
_KEPT_STALLS = 10_000


@dataclass(frozen=True, slots=True)
class Stall:
    """The loop was blocked for `seconds` until `at`, on the monotonic clock."""

    at: float
    seconds: float


class Findings(TypedDict):
    """What a watchdog has measured."""

    longest_s: float
    stalls: list[dict[str, float]]


class LoopWatchdog:
    """Checks every 10 ms how late it is. Keeps the latest stalls of 20 ms and more, and the longest of all."""

    __slots__ = ("_clock", "_due", "_timer", "_waited", "_waited_before", "longest_s", "stalls")

    def __init__(self, clock: Clock, waited_for_core_s: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._waited = waited_for_core_s
        """The total time in which the loop's thread was ready to run but had no core."""
        self._waited_before = 0.0
        self._timer: Timer | None = None
        self._due = 0.0
        self.longest_s = 0.0
        self.stalls: deque[Stall] = deque(maxlen=_KEPT_STALLS)

    def start(self) -> None:
        self._waited_before = self._waited()
        self._due = self._clock.monotonic() + _INTERVAL_S
        self._timer = self._clock.call_later(_INTERVAL_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.monotonic()
        late = now - self._due - (self._waited() - self._waited_before)
        if late > self.longest_s:
            self.longest_s = late
        if late >= _WORTH_KEEPING_S:
            self.stalls.append(Stall(now, late))
        self.start()

    def findings(self) -> Findings:
        """The measurements, as JSON."""
        return {
            "longest_s": self.longest_s,
            "stalls": [{"at": stall.at, "seconds": stall.seconds} for stall in self.stalls],
        }
