"""Memory that reads of log files reuse once what they read was sent: no allocation, no clearing, warm caches.

A buffer is free again when nothing refers to it any more: a reader has nothing to give back.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

READ_BUFFER_BYTES: Final = 1 << 20
"""What clients read of a partition at once, by default."""

_MAX_BUFFERS: Final = 8
"""As much as one response holds; reads beyond that get memory of their own."""
_LEAST_BYTES: Final = 128 << 10
"""Smaller reads get memory of their own: they would keep a whole buffer."""


def _pop(buffers: deque[bytearray]) -> tuple[bytearray, int]:
    """The buffer that was used last, and the number of references to it."""
    buffer = buffers.pop()
    return buffer, sys.getrefcount(buffer)


_FREE: Final = _pop(deque([bytearray()]))[1]
"""References to a buffer that nobody else has. Counted, because versions of Python count differently."""


class ReadBuffers:
    """A few buffers for reads. Safe in any thread: a thread has a buffer for itself while it looks at it."""

    __slots__ = ("_buffers", "_made")

    def __init__(self) -> None:
        self._buffers: deque[bytearray] = deque()
        self._made = 0

    def take(self, size: int) -> memoryview:
        """Memory of this size. It is not cleared."""
        if not _LEAST_BYTES <= size <= READ_BUFFER_BYTES:
            return memoryview(bytearray(size))
        buffers = self._buffers
        for _ in range(self._made):
            try:
                buffer, references = _pop(buffers)
            except IndexError:  # other threads look at the rest
                break
            if references == _FREE:
                view = memoryview(buffer)[:size]
                # The one that was used last is looked at first: it is the warmest.
                buffers.append(buffer)
                return view
            buffers.appendleft(buffer)
        if self._made >= _MAX_BUFFERS:
            return memoryview(bytearray(size))
        self._made += 1
        buffer = bytearray(READ_BUFFER_BYTES)
        buffers.append(buffer)
        return memoryview(buffer)[:size]
