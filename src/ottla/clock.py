"""Time and randomness, the only door to both.

Everything that waits, stamps or draws asks a `Clock`; tests hand in a `VirtualClock` whose time moves only
when told to, so that a run can be replayed from its seed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """What `call_later` gives back."""

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

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back on the event loop after the delay, unless cancelled."""
        ...

    def random_uuid(self) -> bytes:
        """Sixteen bytes of a random (version 4) UUID, never one of Kafka's reserved ones."""
        ...


def random_uuid_from(rng: random.Random) -> bytes:
    """What `Clock.random_uuid` gives, from a source of one's own."""
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

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.call_later(delay_s, callback, *args)

    def random_uuid(self) -> bytes:
        return random_uuid_from(self.random)


class _VirtualTimer:
    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """A clock that stands still until `advance` moves it, running the timers that fall due on the way."""

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

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
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

    def advance_ms(self, milliseconds: int) -> None:
        self.advance(milliseconds / 1000)
