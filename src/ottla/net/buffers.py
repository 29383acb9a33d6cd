"""Memory for what is received: one scratch buffer for all connections, and a pool for unfinished requests.

A connection owns memory only while a request of it is partly there, so that idle connections cost nothing. How
frames are cut is left to the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SCRATCH_BYTES: Final = 512 << 10
"""What one read of any connection may bring."""

FIRST_GROWTH_BYTES: Final = 1 << 20
"""What an unfinished request gets at once, whatever it announced, as long as few others are unfinished."""

GROWTH: Final = 4
"""A buffer grows to so many times of what has really come."""

_POOLED_BUFFER_BYTES: Final = FIRST_GROWTH_BYTES
_POOLED_BUFFERS: Final = 16
_SMALLEST_BYTES: Final = 4 << 10


class ReceiveBuffers:
    """Buffers for the connections of one event loop.

    `max_bytes` is `queued.max.request.bytes`: while unfinished requests hold more, connections that need memory
    wait; 0 or less means no bound.
    """

    __slots__ = ("_free", "_held", "_pooled", "_waiting", "max_bytes", "scratch")

    def __init__(self, max_bytes: int = -1) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.max_bytes = max_bytes
        self._held = 0
        self._pooled = 0
        """Buffers of the pool's size that connections have."""
        self._free: list[bytearray] = []
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def held_bytes(self) -> int:
        """What unfinished requests hold now."""
        return self._held

    @property
    def exhausted(self) -> bool:
        return 0 < self.max_bytes <= self._held

    def take(self, wanted: int, least: int) -> bytearray:
        """A buffer of `wanted` bytes or more, or, where many have such a one already, of `least`.

        Its content is whatever was there before.
        """
        if wanted > _POOLED_BUFFER_BYTES:
            buffer = bytearray(wanted)
        elif wanted > _SMALLEST_BYTES and self._free:
            buffer = self._free.pop()
        elif wanted > _SMALLEST_BYTES and self._pooled < _POOLED_BUFFERS:
            # Fresh memory of this size costs page faults at each request: keep a few warm ones.
            buffer = bytearray(_POOLED_BUFFER_BYTES)
        else:
            buffer = bytearray(max(least, _SMALLEST_BYTES))
        self._held += len(buffer)
        self._pooled += len(buffer) == _POOLED_BUFFER_BYTES
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        self._held -= len(buffer)
        if len(buffer) == _POOLED_BUFFER_BYTES:
            self._pooled -= 1
            if len(self._free) < _POOLED_BUFFERS:
                self._free.append(buffer)
        while self._waiting and not self.exhausted:
            self._waiting.popleft()()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when memory is there again."""
        self._waiting.append(resume)
