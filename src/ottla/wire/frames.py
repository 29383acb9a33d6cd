"""Cuts a stream of bytes into frames: each a big-endian 32-bit size and that many bytes.

Sans-io: bytes go in as they arrive, whole frames come out, each in separate memory. A broker's connections to its
clients cut frames by themselves (`ottla.net.connection`), because they hand them on without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ottla.wire.errors import FrameTooLargeError
from ottla.wire.primitives import Buffer

SIZE_BYTES: Final = 4
_SIZE = Struct(">i")


class FrameDecoder:
    """Cuts one stream. Holds at most one incomplete frame.

    A socket is read into `buffer()`, and `received` reports how much was read: a frame larger than one read then
    arrives straight in the memory that it stays in. `feed` takes bytes that were read elsewhere.
    After a FrameTooLargeError the position in the stream is lost: close the connection.
    """

    __slots__ = ("_end", "_max_size", "_scratch", "_view")

    def __init__(self, max_size: int, scratch: memoryview | None = None) -> None:
        """`scratch` is where reads go while no frame is incomplete. Decoders of one event loop can share it."""
        self._max_size = max_size
        self._scratch = scratch
        self._view: memoryview | None = None
        """An incomplete frame with its size, or the four bytes of a size that is itself incomplete."""
        self._end = 0
        """How much of the view has been received."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return 0 if self._view is None else self._end

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream go."""
        if self._view is not None:
            return self._view[self._end :]
        assert self._scratch is not None
        return self._scratch

    def received(self, size: int) -> Iterator[memoryview]:
        """Take so many bytes that were put into `buffer()`, and yield the frames that are complete now."""
        view = self._view
        if view is None:
            assert self._scratch is not None
            yield from self._cut(self._scratch[:size])
            return
        self._end += size
        if self._end < len(view):
            return
        self._view = None
        if len(view) > SIZE_BYTES:
            yield view[SIZE_BYTES:]
        else:
            yield from self._cut(view)

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take bytes, and return the frames that are complete now. `data` can be reused afterwards."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while self._view is not None and rest:
            room = self.buffer()
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            rest = rest[taken:]
            frames += self.received(taken)
        frames += self._cut(rest)
        return frames

    def _cut(self, view: memoryview) -> Iterator[memoryview]:
        position, end = 0, len(view)
        size = 0
        while end - position >= SIZE_BYTES:
            size = _SIZE.unpack_from(view, position)[0]
            if not 0 <= size <= self._max_size:
                raise FrameTooLargeError(f"a frame announces {size} bytes, the limit is {self._max_size}")
            last = position + SIZE_BYTES + size
            if last > end:
                break
            # The memory of the stream is used again for the next read, and the frame may be kept longer.
            yield memoryview(bytes(view[position + SIZE_BYTES : last]))
            position = last
        rest = end - position
        if rest:
            self._view = memoryview(bytearray(SIZE_BYTES + (size if rest >= SIZE_BYTES else 0)))
            self._view[:rest] = view[position:]
            self._end = rest
