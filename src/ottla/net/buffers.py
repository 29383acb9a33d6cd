"""Memory for received bytes: one scratch buffer for all connections, and a pool for incomplete requests.

A connection owns memory only while it holds an incomplete request, so that idle connections cost nothing. The
connection cuts the frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SCRATCH_BYTES: Final = 512 << 10
"""The size of one read of any connection."""

FIRST_GROWTH_BYTES: Final = 1 << 20
"""The first buffer of an incomplete request, whatever size it announced, while few others are incomplete."""

GROWTH: Final = 4
"""A buffer grows to this multiple of the bytes that have arrived."""

_POOLED_BUFFER_BYTES: Final = FIRST_GROWTH_BYTES
_POOLED_BUFFERS: Final = 16
_SMALLEST_BYTES: Final = 4 << 10


class ReceiveBuffers:
    """Buffers for the connections of one event loop.

    `max_bytes` is `queued.max.request.bytes`: while incomplete requests hold more, connections that need memory
    wait. 0 or less means no limit.
    """

    __slots__ = ("_free", "_held", "_pooled", "_waiting", "max_bytes", "scratch")

    def __init__(self, max_bytes: int = -1) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.max_bytes = max_bytes
        self._held = 0
        self._pooled = 0
        """Buffers of the pool's size that connections hold."""
        self._free: list[bytearray] = []
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def held_bytes(self) -> int:
        """Bytes that incomplete requests hold now."""
        return self._held

    @property
    def exhausted(self) -> bool:
        return 0 < self.max_bytes <= self._held

    def take(self, wanted: int, least: int) -> bytearray:
        """A buffer of at least `wanted` bytes, or of `least` bytes while many large ones are in use.

        It is not cleared.
        """
        if wanted > _POOLED_BUFFER_BYTES:
            buffer = bytearray(wanted)
        elif wanted > _SMALLEST_BYTES and self._free:
            buffer = self._free.pop()
        elif wanted > _SMALLEST_BYTES and self._pooled < _POOLED_BUFFERS:
            # New memory of this size costs page faults at each request: keep a few warm buffers.
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
        """Call `resume` once when memory is available again."""
        self._waiting.append(resume)
