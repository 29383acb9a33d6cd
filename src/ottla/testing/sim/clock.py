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

    __slots__ = ("_loop", "random", "skew_ms")

    def __init__(self, loop: SimLoop, rng: random.Random, skew_ms: int = 0) -> None:
        self._loop = loop
        self.random = rng
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + round(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[*Args], object], *args: *Args) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    def random_uuid(self) -> bytes:
        return random_uuid_from(self.random)
