"""Reads and writes the records inside a batch: zigzag varints, keys, values and headers.

`batch.py` handles batches, offsets and compression; this module works on uncompressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ottla.errors import ApiException, ErrorCode

Header = tuple[str, bytes | None]
RawRecord = tuple[int, int, bytes | None, int, int, int, int]
"""(timestamp delta, offset delta, key, start of the value, its length or -1, start, end) of one record."""


@dataclass(slots=True)
class Record:
    """One record. `headers` keep their order; a key of a header may appear more than once."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


class InvalidRecordError(ApiException):
    """The bytes inside a batch are not records."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of up to ten bytes; returns (value, next position)."""
    shift = 0
    raw = 0
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise InvalidRecordError("a varint is longer than ten bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint of a 64-bit value."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def iter_raw(data: bytes, count: int) -> Iterator[RawRecord]:
    """Walk over `count` records without reading values and headers.

    Raises `InvalidRecordError` if a length exceeds its record, or if bytes are missing or left over.
    """
    pos = 0
    size = len(data)
    try:
        for _ in range(count):
            start = pos
            body, pos = read_varint(data, pos)
            end = pos + body
            if body < 0 or end > size:
                raise InvalidRecordError(f"a record of {body} bytes does not fit into the last {size - pos}")
            pos += 1  # attributes of a record: none are defined
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            else:
                timestamp_delta, pos = read_varint(data, pos - 1)
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
            else:
                offset_delta, pos = read_varint(data, pos - 1)
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, pos = read_varint(data, pos - 1)
            key: bytes | None = None
            if length >= 0:
                key = data[pos : pos + length]
                pos += length
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, pos = read_varint(data, pos - 1)
            value_start = pos
            if length >= 0:
                pos += length
            # The header count takes at least a byte, so a position at or past the end is one too far.
            if pos >= end or (data[pos] == 0 and pos + 1 != end):
                raise InvalidRecordError(f"a record's fields do not add up to its size of {body} bytes")
            yield timestamp_delta, offset_delta, key, value_start, length, start, end
            pos = end
    except IndexError:
        raise InvalidRecordError(f"the batch ends inside one of its {count} records") from None
    if pos != size:
        raise InvalidRecordError(f"{size - pos} bytes follow the last of {count} records")


def value_and_headers(
    data: bytes, value_start: int, length: int, end: int
) -> tuple[bytes | None, tuple[Header, ...]]:
    """The value and headers of a record, which `iter_raw` does not read."""
    if length < 0:
        return None, read_headers(data, value_start, end)
    value_end = value_start + length
    return data[value_start:value_end], read_headers(data, value_end, end)


def read_headers(data: bytes, pos: int, end: int) -> tuple[Header, ...]:
    """The headers that begin at `pos` and must fill the record up to `end`."""
    if data[pos] == 0:
        return ()
    headers: list[Header] = []
    try:
        count, pos = read_varint(data, pos)
        if count < 0 or count > end - pos:
            raise InvalidRecordError(f"a record claims {count} headers in {end - pos} bytes")
        for _ in range(count):
            length, pos = read_varint(data, pos)
            if length < 0 or pos + length > end:
                raise InvalidRecordError(f"a header key of {length} bytes does not fit into its record")
            key = data[pos : pos + length].decode("utf-8", "surrogateescape")
            pos += length
            length, pos = read_varint(data, pos)
            value: bytes | None = None
            if length >= 0:
                if pos + length > end:
                    raise InvalidRecordError(f"a header value of {length} bytes does not fit into its record")
                value = data[pos : pos + length]
                pos += length
            headers.append((key, value))
    except IndexError:
        raise InvalidRecordError("the batch ends inside a record's headers") from None
    if pos != end:
        raise InvalidRecordError("a record's headers do not end where the record does")
    return tuple(headers)


def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] = (),
) -> None:
    """Append one record with its length prefix."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    pairs = list(headers)
    write_varint(body, len(pairs))
    for name, content in pairs:
        _append_bytes(body, name.encode("utf-8", "surrogateescape"))
        _append_bytes(body, content)
    write_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # the varint of -1
    else:
        write_varint(out, len(data))
        out += data
