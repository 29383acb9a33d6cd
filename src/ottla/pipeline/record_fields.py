"""Finds the fields of many records at once in the plain bytes of their batches, with numpy: the way back of `columns`.

Every length is checked against its record before it is used, so that broken bytes raise `InvalidRecordError`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ottla.records.record import InvalidRecordError, read_varint

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_MORE: Final = 0x80
_MOST_VARINT_BYTES: Final = 10
_FEWEST_ALIKE: Final = 32
"""Shorter runs of records of one size are not worth a look with numpy."""
_GROWTH: Final = 4
_FIRST_BURST: Final = 64
_LONGEST_BURST: Final = 8192
_MANY_HEADERS: Final = 32
"""Records with more headers than this are rare and read one by one."""

_STEPS: Final = tuple(
    [1 + (byte >> 1) for byte in range(_MORE)] + [2 + ((byte & 0x7F) >> 1) for byte in range(_MORE, 256)]
)
"""The size of a record by the first byte of its length, without the part of the second byte."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Where the fields of each record are. A length of -1 stands for null."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_counts: Ints
    headers_at: Ints
    """After the count."""
    ends: Ints


@dataclass(frozen=True, slots=True)
class HeaderFields:
    """Where the headers of all records are, in their order; `counts` has how many each record has."""

    counts: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints


def record_starts(data: bytes) -> Ints:
    """The start of each record in bytes that hold whole records and nothing else.

    A length is all that leads from one record to the next. Runs of records of one size, which are common, are found
    with numpy: as long as the same length stands at each next place, these places are starts.
    """
    raw = np.frombuffer(data, np.uint8)
    found: list[Ints] = []
    at, end = 0, len(data)
    burst = _FIRST_BURST
    while at < end:
        run = _run_of_one_size(data, raw, at)
        if len(run) >= _FEWEST_ALIKE:
            found.append(run)
            at = _next_start(data, int(run[-1]))
            burst = _FIRST_BURST
            continue
        starts, at = _burst_of_records(data, at, burst)
        found.append(np.frombuffer(starts, np.int64))
        burst = min(2 * burst, _LONGEST_BURST)
    if at != end:
        raise InvalidRecordError(f"the last record ends {at - end} bytes after its batch")
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _run_of_one_size(data: bytes, raw: Bytes, at: int) -> Ints:
    """The starts, from `at` on, of records whose length is written with the same bytes."""
    step = _next_start(data, at) - at
    width = 1 if data[at] < _MORE else 2
    if step < width or (width == 2 and data[at + 1] >= _MORE):
        return np.zeros(0, np.int64)
    most = (len(data) - at) // step
    alike, look = 0, _FEWEST_ALIKE
    while alike < most:
        look = min(_GROWTH * look, most - alike)
        here = raw[at + alike * step : at + (alike + look) * step].reshape(look, step)
        same = here[:, 0] == data[at]
        if width == 2:
            same &= here[:, 1] == data[at + 1]
        if not bool(same.all()):
            alike += int(np.argmin(same))
            break
        alike += look
    return at + step * np.arange(alike, dtype=np.int64)


def _next_start(data: bytes, at: int) -> int:
    try:
        size, after = read_varint(data, at)
    except IndexError:
        raise InvalidRecordError("the batch ends inside the length of a record") from None
    if size < 0:
        raise InvalidRecordError(f"a record claims a size of {size} bytes")
    return after + size


def _burst_of_records(data: bytes, at: int, most: int) -> tuple[array[int], int]:
    """Up to `most` starts from `at` on, one by one, and the start of the next."""
    starts = array("q")
    add, steps, end = starts.append, _STEPS, len(data)
    try:
        while at < end and most:
            most -= 1
            add(at)
            first = data[at]
            if first < _MORE:
                at += steps[first]
            elif data[at + 1] < _MORE:
                at += steps[first] + (data[at + 1] << 6)
            else:
                at = _next_start(data, at)
    except IndexError:
        raise InvalidRecordError("the batch ends inside the length of a record") from None
    return starts, at


def read_fields(raw: Bytes, starts: Ints, ends: Ints) -> Fields:
    """The fields of the records at these places; `raw` are the bytes that `starts` and `ends` point into."""
    try:
        size, at = varints_at(raw, starts)
        _check(at + size == ends, "a record's length leads to another place than its batch's")
        times, at = varints_at(raw, at + 1)
        offsets, at = varints_at(raw, at)
        key_size, key_at = varints_at(raw, at)
        _check((key_size >= -1) & (key_size <= ends - key_at), "a key does not fit into its record")
        value_size, value_at = varints_at(raw, key_at + np.maximum(key_size, 0))
        _check((value_size >= -1) & (value_size <= ends - value_at), "a value does not fit into its record")
        counts, headers_at = varints_at(raw, value_at + np.maximum(value_size, 0))
    except IndexError:
        raise InvalidRecordError("a record ends inside one of its fields") from None
    _check((counts >= 0) & (counts <= ends - headers_at), "a record's headers do not fit into it")
    _check((counts > 0) | (headers_at == ends), "a record's fields do not add up to its size")
    return Fields(times, offsets, key_at, key_size, value_at, value_size, counts, headers_at, ends)


def varints_at(raw: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varint at each place, and the place after it. IndexError beyond the end of `raw`."""
    first = raw[at]
    zigzag = first.astype(np.int64)
    after = at + 1
    if len(first) and int(first.max()) >= _MORE:
        rows = np.flatnonzero(first >= _MORE)
        part = zigzag[rows] & 0x7F
        place = after[rows]
        for byte_number in range(1, _MOST_VARINT_BYTES):
            byte = raw[place]
            part |= (byte & 0x7F).astype(np.int64) << (7 * byte_number)
            place = place + 1
            ended = byte < _MORE
            if bool(ended.all()):
                zigzag[rows], after[rows] = part, place
                break
            zigzag[rows[ended]], after[rows[ended]] = part[ended], place[ended]
            more = ~ended
            rows, part, place = rows[more], part[more], place[more]
        else:
            raise InvalidRecordError("a varint is longer than ten bytes")
    unsigned = zigzag.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(zigzag & 1), after


def read_headers(data: bytes, raw: Bytes, fields: Fields) -> HeaderFields:
    """The headers of all records: the first of each record, then the second of each, and so on."""
    counts = fields.header_counts
    parts: list[npt.NDArray[np.int64]] = []
    many = np.flatnonzero(counts > _MANY_HEADERS)
    rows = np.flatnonzero((counts > 0) & (counts <= _MANY_HEADERS))
    at, number = fields.headers_at[rows], 0
    try:
        while len(rows):
            ends = fields.ends[rows]
            key_size, key_at = varints_at(raw, at)
            _check(
                (key_size >= 0) & (key_size <= ends - key_at), "a header's key does not fit into its record"
            )
            value_size, value_at = varints_at(raw, key_at + key_size)
            _check(
                (value_size >= -1) & (value_size <= ends - value_at),
                "a header's value does not fit into its record",
            )
            at = value_at + np.maximum(value_size, 0)
            number += 1
            parts.append(np.stack([rows, key_at, key_size, value_at, value_size]))
            left = counts[rows] > number
            _check(left | (at == ends), "a record's headers do not end where the record does")
            rows, at = rows[left], at[left]
        parts += [_many_headers(data, fields, int(row)) for row in many]
    except IndexError:
        raise InvalidRecordError("a record ends inside its headers") from None
    if not parts:
        empty = np.zeros(0, np.int64)
        return HeaderFields(counts, empty, empty, empty, empty)
    # Places only grow within a record and from record to record, so they give the order.
    table = np.concatenate(parts, axis=1)
    table = table[:, np.argsort(table[1], kind="stable")]
    return HeaderFields(counts, table[1], table[2], table[3], table[4])


def _many_headers(data: bytes, fields: Fields, row: int) -> npt.NDArray[np.int64]:
    at, end = int(fields.headers_at[row]), int(fields.ends[row])
    found = np.empty((5, int(fields.header_counts[row])), np.int64)
    for number in range(found.shape[1]):
        key_size, key_at = read_varint(data, at)
        if not 0 <= key_size <= end - key_at:
            raise InvalidRecordError(f"a header's key of {key_size} bytes does not fit into its record")
        value_size, value_at = read_varint(data, key_at + key_size)
        if not -1 <= value_size <= end - value_at:
            raise InvalidRecordError(f"a header's value of {value_size} bytes does not fit into its record")
        found[:, number] = row, key_at, key_size, value_at, value_size
        at = value_at + max(value_size, 0)
    if at != end:
        raise InvalidRecordError("a record's headers do not end where the record does")
    return found


def _check(right: npt.NDArray[np.bool_], sentence: str) -> None:
    if not bool(right.all()):
        raise InvalidRecordError(sentence)
