"""The clock of a simulated node: the loop's time, off by a skew of its own, and its own draw from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from ottla.clock import Args, Timer, random_uuid_from
from ottla.testing.sim.loop import SimLoop

START_MS: Final = 1_700_000_000_000


class SimClock:
    """Fulfils `ottla.clock.Clock`."""

    __slots__ = ("_drift", "_drift_since", "_loop", "random", "skew_ms")

    def __init__(self, loop: SimLoop, rng: random.Random, skew_ms: int = 0) -> None:
        self._loop = loop
        self.random = rng
        self.skew_ms = skew_ms
        self._drift = 0.0
        self._drift_since = 0.0

    def drift(self, rate: float) -> None:
        """Run too fast by this rate from now on. What it is wrong by already stays, until the skew is set."""
        now = self._loop.time()
        self.skew_ms += round((now - self._drift_since) * 1000 * self._drift)
        self._drift, self._drift_since = rate, now

    def now_ms(self) -> int:
        now = self._loop.time()
        wrong_ms = self.skew_ms
        if self._drift:
            wrong_ms += round((now - self._drift_since) * 1000 * self._drift)
        return START_MS + round(now * 1000) + wrong_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[*Args], object], *args: *Args) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def random_uuid(self) -> bytes:
        return random_uuid_from(self.random)
