"""The receiving half of a connection to another node: cuts answers, each into memory of its own.

An answer larger than one read is received straight into the buffer that its records are then read from. What an
answer means is left to the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

_SIZE = Struct(">i")

SCRATCH_BYTES: Final = 64 << 10


class ResponseProtocol(asyncio.BufferedProtocol):
    """One connected socket. `on_answer` gets each whole answer; it may keep views of it.

    `on_lost` is called once: None for a connection that was closed in order, else what was wrong.
    """

    __slots__ = ("_end", "_frame", "_max_bytes", "_on_answer", "_on_lost", "_scratch", "_view", "transport")

    def __init__(
        self,
        scratch: memoryview,
        max_bytes: int,
        on_answer: Callable[[memoryview], None],
        on_lost: Callable[[str | None], None],
    ) -> None:
        self._scratch = scratch
        """Shared by all connections of a loop: filled and emptied within one turn."""
        self._max_bytes = max_bytes
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._frame: bytearray | None = None
        """The answer that is being received, or the first bytes of its size."""
        self._view: memoryview = scratch
        self._end = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch if self._frame is None else self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._cut(self._scratch, nbytes)
            return
        self._end += nbytes
        if self._end < len(self._frame):
            return
        view, self._frame = self._view, None
        self._view = self._scratch
        self._whole(view)

    def _whole(self, view: memoryview) -> None:
        """A buffer of its own is full: it is an answer, or the size of one."""
        if len(view) > 4:
            self._on_answer(view[4:])
            return
        self._begin(view, 0, 4)

    def _cut(self, view: memoryview, end: int) -> None:
        position = 0
        while end - position >= 4:
            size: int = _SIZE.unpack_from(view, position)[0]
            if not 4 <= size <= self._max_bytes:
                self._refuse(size)
                return
            last = position + 4 + size
            if last > end:
                break
            # The scratch buffer is filled again at the next turn, and the answer may be looked at longer.
            self._on_answer(memoryview(bytes(view[position + 4 : last])))
            if self.transport is None or self.transport.is_closing():
                return
            position = last
        if position < end:
            self._begin(view, position, end)

    def _begin(self, view: memoryview, position: int, end: int) -> None:
        """Go on in a buffer that has room for just this answer (or for its size, if that is not whole)."""
        rest = end - position
        size = 0
        if rest >= 4:
            size = _SIZE.unpack_from(view, position)[0]
            if not 4 <= size <= self._max_bytes:
                self._refuse(size)
                return
        self._frame = frame = bytearray(4 + size)
        self._view = memoryview(frame)
        self._view[:rest] = view[position:end]
        self._end = rest

    def _refuse(self, size: int) -> None:
        transport = self.transport
        self._lost(f"it announced an answer of {size} bytes, the limit is {self._max_bytes}")
        if transport is not None:
            transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(None)

    def _lost(self, why: str | None) -> None:
        self.transport = None
        on_lost, self._on_lost = self._on_lost, _nobody
        on_lost(why)

    def close(self) -> None:
        """Let go; nobody is told."""
        self._on_lost = _nobody
        if self.transport is not None:
            self.transport.abort()


def _nobody(why: str | None) -> None:
    """Whom a connection tells that was given up or has told already."""
