"""Unsigned varints.

Compiled message codecs inline the short ones and call these functions for the long ones. `ottla.records` has the zigzag
varints of records.
"""

from __future__ import annotations

from ottla.wire.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    try:
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            return byte, pos
        value = byte & 0x7F
        shift = 7
        while True:
            byte = buf[pos]
            pos += 1
            if byte < 0x80:
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 28:
                raise DecodeError("a varint has more than five bytes")
    except IndexError:
        raise DecodeError(f"the bytes end inside a varint at {pos}") from None
    value |= byte << shift
    if value > 0xFFFF_FFFF:
        raise DecodeError("a varint has more than 32 bits")
    return value, pos


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        if value < 0:
            raise EncodeError(f"{value} is negative and has no unsigned varint")
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
