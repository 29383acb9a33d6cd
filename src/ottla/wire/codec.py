"""Messages to bytes and back: the functions that all other packages call.

Bad bytes raise `DecodeError`, values that the schema cannot express raise `EncodeError`, and a version that the
message or a field lacks raises `UnsupportedVersionError`, which is both.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ottla.limits import (
    DECODE_AMPLIFICATION,
    DECODE_FLOOR_BYTES,
    MAX_DECODED_RESPONSE_BYTES,
    RESPONSE_DECODE_AMPLIFICATION,
)
from ottla.wire.classes import WireMessage
from ottla.wire.errors import DecodeError, EncodeError
from ottla.wire.primitives import Buffer

M = TypeVar("M", bound=WireMessage)

_COPY_BELOW = 1024
_BAD_BYTES = (struct.error, IndexError, UnicodeDecodeError)
_BAD_VALUES = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def decode(cls: type[M], version: int, buf: Buffer) -> M:
    """The message that these bytes are, all of them."""
    end = len(buf)
    msg, pos = decode_prefix(cls, version, buf, 0)
    if pos != end:
        raise DecodeError(f"{end - pos} bytes follow the end of {cls.NAME} version {version}")
    return msg


def decode_response(cls: type[M], version: int, buf: Buffer, offset: int = 0) -> M:
    """The message from the offset to the end, for clients: a response may take more memory than a request."""
    end = len(buf)
    budget = max(DECODE_FLOOR_BYTES, RESPONSE_DECODE_AMPLIFICATION * (end - offset))
    msg, pos = decode_prefix(cls, version, buf, offset, min(budget, MAX_DECODED_RESPONSE_BYTES))
    if pos != end:
        raise DecodeError(f"{end - pos} bytes follow the end of {cls.NAME} version {version}")
    return msg


def decode_prefix(
    cls: type[M], version: int, buf: Buffer, offset: int = 0, budget: int | None = None
) -> tuple[M, int]:
    """The message that begins at the offset, and where it ends.

    Its decoded form may take `budget` bytes; without one, the bound against hostile requests holds.
    """
    decoder = cls.DECODERS[version]
    end = len(buf)
    try:
        if end - offset > decoder.unchecked_size:
            if budget is None:
                budget = max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * (end - offset))
            result: tuple[M, int] = decoder.bounded(buf, offset, end, budget)
            return result
        if end - offset <= _COPY_BELOW and not decoder.has_records and type(buf) is not bytes:
            # Bytes are faster to index than a memory view.
            msg, pos = decoder.fast(bytes(buf[offset:]), 0, end - offset)
            return msg, pos + offset
        result = decoder.fast(buf, offset, end)
        return result
    except _BAD_BYTES as error:
        raise DecodeError(f"the bytes are not a valid {cls.NAME} of version {version}: {error}") from error


def encode(msg: WireMessage, version: int) -> bytes:
    """The bytes of a message."""
    return bytes(encode_into(msg, version, bytearray(), None))


def encode_into(msg: WireMessage, version: int, out: bytearray, buffers: list[Buffer] | None) -> bytearray:
    """Append to `out`, and return it. Large records go to `buffers` uncopied, after `out`; a new `out` follows them."""
    try:
        return msg.ENCODERS[version](msg, out, buffers)
    except _BAD_VALUES as error:
        name = type(msg).__name__
        raise EncodeError(f"this {name} cannot be written in version {version}: {error}") from error
