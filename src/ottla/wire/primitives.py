"""Varints and length-prefixed values, for what is read and written by hand.

Compiled message codecs have these inlined; record batches and metadata record frames call them. A reader
takes a buffer and a position and gives the value and the next position; bad bytes raise `DecodeError`.
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


def read_uvarlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits."""
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
            if shift > 63:
                raise DecodeError("a varlong has more than ten bytes")
    except IndexError:
        raise DecodeError(f"the bytes end inside a varlong at {pos}") from None
    value |= byte << shift
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise DecodeError("a varlong has more than 64 bits")
    return value, pos


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """A signed (zigzag) varint of 32 bits."""
    value, pos = read_uvarint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """A signed (zigzag) varint of 64 bits."""
    value, pos = read_uvarlong(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        if value < 0:
            raise EncodeError(f"{value} is negative: no unsigned varint")
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """The bytes of a signed (zigzag) varint; good for 32 and 64 bits alike."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    if value < 0:
        raise EncodeError(f"{value} is negative: no unsigned varint")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed (zigzag) varint; good for 32 and 64 bits alike."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def size_of_uvarint(value: int) -> int:
    """How many bytes `uvarint(value)` has."""
    return (value.bit_length() + 6) // 7 or 1


def size_of_varint(value: int) -> int:
    """How many bytes `varint(value)` has."""
    return size_of_uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_string(buf: Buffer, pos: int, length: int) -> tuple[str, int]:
    """`length` bytes of UTF-8."""
    raw, end = read_bytes(buf, pos, length)
    try:
        return raw.decode(), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string at {pos} is not UTF-8: {error.reason}") from None


def read_bytes(buf: Buffer, pos: int, length: int) -> tuple[bytes, int]:
    """A copy of `length` bytes."""
    end = pos + length
    if length < 0 or end > len(buf):
        raise DecodeError(f"{length} bytes announced at {pos}, {len(buf) - pos} are there")
    return bytes(buf[pos:end]), end


def read_compact_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """A string with its length plus one as a varint before it; null is 0."""
    length, pos = read_uvarint(buf, pos)
    if length == 0:
        return None, pos
    return read_string(buf, pos, length - 1)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
