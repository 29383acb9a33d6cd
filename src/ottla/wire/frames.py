"""Cuts a stream of bytes into frames: each a big-endian 32-bit size and that many bytes.

Sans-io: bytes go in as they come, whole frames come out. What is inside is the codecs' business.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.wire.errors import FrameTooLargeError
from ottla.wire.primitives import Buffer

SIZE_BYTES: Final = 4
_SIZE = struct.Struct(">i")


def read_frame_size(buf: Buffer, pos: int, max_size: int) -> int:
    """The size of the frame whose size prefix stands at `pos`; FrameTooLargeError if it may not be."""
    size: int = _SIZE.unpack_from(buf, pos)[0]
    if size < 0:
        raise FrameTooLargeError(f"a frame announces the size {size}, which is negative")
    if size > max_size:
        raise FrameTooLargeError(f"a frame announces {size} bytes, more than the {max_size} allowed")
    return size


class FrameDecoder:
    """Collects bytes and gives the frames in them; holds at most one frame that is not whole yet."""

    __slots__ = ("_kept", "_max_size")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._kept = bytearray()

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that are whole now. They stay valid for as long as they are held.

        After a FrameTooLargeError the stream has lost its way and must be given up.
        """
        if self._kept:
            self._kept += data
            stream: Buffer = self._kept
        else:
            stream = bytes(data)
        frames: list[memoryview] = []
        view = memoryview(stream)
        pos = 0
        while len(stream) - pos >= SIZE_BYTES:
            size = read_frame_size(stream, pos, self._max_size)
            end = pos + SIZE_BYTES + size
            if end > len(stream):
                break
            frames.append(view[pos + SIZE_BYTES : end])
            pos = end
        # The frames keep looking at the old stream, so the rest moves on to a new one.
        if pos or stream is not self._kept:
            self._kept = bytearray(view[pos:])
        else:
            view.release()
        return frames

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._kept)


def frame(payload: Buffer) -> bytes:
    """The payload with its size before it."""
    return _SIZE.pack(len(payload)) + bytes(payload)
