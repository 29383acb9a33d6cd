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
"""A request announced as larger than this gets its full buffer only after this much of it has come."""

_POOLED_BUFFER_BYTES: Final = FIRST_GROWTH_BYTES
_POOLED_BUFFERS: Final = 16
_SMALLEST_BYTES: Final = 4 << 10


class ReceiveBuffers:
    """Buffers for the connections of one event loop.

    `max_bytes` is `queued.max.request.bytes`: while unfinished requests hold more, connections that need memory
    wait; 0 or less means no bound.
    """

    __slots__ = ("_free", "_held", "_waiting", "max_bytes", "scratch")

    def __init__(self, max_bytes: int = -1) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.max_bytes = max_bytes
        self._held = 0
        self._free: list[bytearray] = []
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def held_bytes(self) -> int:
        """What unfinished requests hold now."""
        return self._held

    @property
    def exhausted(self) -> bool:
        return 0 < self.max_bytes <= self._held

    def take(self, needed: int) -> bytearray:
        """A buffer of at least `needed` bytes; its content is whatever was there before."""
        if _SMALLEST_BYTES < needed <= _POOLED_BUFFER_BYTES:
            # Fresh memory of this size costs page faults at each request: keep a few warm ones.
            buffer = self._free.pop() if self._free else bytearray(_POOLED_BUFFER_BYTES)
        else:
            buffer = bytearray(max(needed, _SMALLEST_BYTES))
        self._held += len(buffer)
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        self._held -= len(buffer)
        if len(buffer) == _POOLED_BUFFER_BYTES and len(self._free) < _POOLED_BUFFERS:
            self._free.append(buffer)
        while self._waiting and not self.exhausted:
            self._waiting.popleft()()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when memory is there again."""
        self._waiting.append(resume)
