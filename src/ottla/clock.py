"""Time and randomness: the only module that reads either.

Code that waits, takes timestamps or draws random numbers uses a `Clock`. Tests pass `ottla.testing.virtual_clock`'s,
whose time moves only when the test moves it, so that a run can be replayed from its seed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

Args = TypeVarTuple("Args")


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time for records, monotonic time for waiting, and the source of randomness."""

    random: random.Random

    def now_ms(self) -> int:
        """Milliseconds since the epoch: what record timestamps and file times use."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: what deadlines use."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[*Args], object], *args: *Args) -> Timer:
        """Call back on the event loop after the delay, unless cancelled."""
        ...

    def random_uuid(self) -> bytes:
        """Sixteen bytes of a random (version 4) UUID, never one of Kafka's reserved ones."""
        ...


def random_uuid_from(rng: random.Random) -> bytes:
    """What `Clock.random_uuid` returns, drawn from the given generator."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        # Kafka never hands out a UUID whose text begins with a dash: it looks like a flag on a command line.
        if raw[0] >> 2 != 0x3E:
            return bytes(raw)


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    __slots__ = ("_loop", "random")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self.random: random.Random = random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay_s: float, callback: Callable[[*Args], object], *args: *Args) -> Timer:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.call_later(delay_s, callback, *args)

    def random_uuid(self) -> bytes:
        return random_uuid_from(self.random)
