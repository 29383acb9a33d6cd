"""A clock for tests: time moves only when the test moves it, and randomness comes from a seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from ottla.clock import Args, Timer, random_uuid_from


class _VirtualTimer:
    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """A clock that stands still until `advance` moves it and runs the timers that fall due."""

    __slots__ = ("_due", "_now_s", "_order", "_start_ms", "random")

    def __init__(self, start_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self._start_ms = start_ms
        self._now_s = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, _VirtualTimer]] = []

    def now_ms(self) -> int:
        return self._start_ms + round(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[[*Args], object], *args: *Args) -> Timer:
        timer = _VirtualTimer(callback, args)
        heapq.heappush(self._due, (self._now_s + max(delay_s, 0.0), next(self._order), timer))
        return timer

    def random_uuid(self) -> bytes:
        return random_uuid_from(self.random)

    def advance(self, seconds: float) -> None:
        """Move time forward; timers run in the order they fall due, each seeing its own due time."""
        end = self._now_s + seconds
        while self._due and self._due[0][0] <= end:
            due, _, timer = heapq.heappop(self._due)
            self._now_s = max(self._now_s, due)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now_s = end

    def jump_ms(self, milliseconds: int) -> None:
        """Set the wall clock, as an operator or NTP does: the monotonic clock and the timers do not notice."""
        self._start_ms += milliseconds

    def advance_ms(self, milliseconds: int) -> None:
        self.advance(milliseconds / 1000)
