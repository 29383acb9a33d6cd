"""The receiving half of a connection to another node: cuts responses, each into separate memory.

A response larger than one read is received straight into the buffer that its records are then read from. The peer
interprets the responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from ottla.wire.errors import FrameTooLargeError
from ottla.wire.frames import FrameDecoder

SCRATCH_BYTES: Final = 64 << 10
_CORRELATION_ID_BYTES: Final = 4


class ResponseProtocol(asyncio.BufferedProtocol):
    """One connected socket. `on_response` gets each whole response and may keep views of it.

    `on_lost` is called once: with None if the connection was closed in order, else with what was wrong.
    """

    __slots__ = ("_frames", "_max_bytes", "_on_lost", "_on_response", "transport")

    def __init__(
        self,
        scratch: memoryview,
        max_bytes: int,
        on_response: Callable[[memoryview], None],
        on_lost: Callable[[str | None], None],
    ) -> None:
        """`scratch` is shared by all connections of a loop: it is filled and emptied within one turn."""
        self._max_bytes = max_bytes
        self._frames = FrameDecoder(max_bytes, scratch)
        self._on_response = on_response
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                if len(frame) < _CORRELATION_ID_BYTES:
                    self._refuse(f"it sent a response of {len(frame)} bytes")
                    return
                self._on_response(frame)
                if self.transport is None or self.transport.is_closing():
                    return
        except FrameTooLargeError as error:
            self._refuse(error.message)

    def _refuse(self, why: str) -> None:
        transport = self.transport
        self._lost(why)
        if transport is not None:
            transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(None)

    def _lost(self, why: str | None) -> None:
        self.transport = None
        on_lost, self._on_lost = self._on_lost, _ignore
        on_lost(why)

    def close(self) -> None:
        """Close the connection without a call to `on_lost`."""
        self._on_lost = _ignore
        if self.transport is not None:
            self.transport.abort()


def _ignore(why: str | None) -> None:
    """Replaces `on_lost` once the connection was closed or its loss was reported."""
