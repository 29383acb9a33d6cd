"""Records of several operations on their way into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.coordinator.records import Encoded
from ottla.coordinator.waiters import Waiter
from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    assemble,
)
from ottla.records.codecs import Compression, compress
from ottla.records.record import write_varint

_RECORD_OVERHEAD: Final = 24
"""An upper bound of what a record takes beside its key and value: lengths, attributes and deltas."""


def size_of(records: Sequence[Encoded]) -> int:
    """No less than what the records take in a batch."""
    size = 0
    for key, value in records:
        size += len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
    return size


def check_fits(size: int, max_bytes: int) -> None:
    """Raise when the records of one operation (see `size_of`) are more than a batch may hold."""
    size += HEADER_SIZE
    if size > max_bytes:
        raise ApiException(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"an operation's records take {size} bytes, more than the {max_bytes} of a batch",
        )


class OpenBatch:
    """A batch that still takes records; its time is that of the first operation."""

    __slots__ = ("_base_offset", "_max_bytes", "_size", "now_ms", "records", "replayed", "waiters")

    def __init__(self, base_offset: int, now_ms: int, max_bytes: int) -> None:
        self._base_offset = base_offset
        self._max_bytes = max_bytes
        self._size = HEADER_SIZE
        self.now_ms = now_ms
        self.records: list[Encoded] = []
        self.waiters: list[Waiter] = []
        self.replayed = False
        """Whether the state has records of this batch already."""

    def has_room_for(self, size: int) -> bool:
        return self._size + size <= self._max_bytes

    def add(self, records: Sequence[Encoded], size: int, waiter: Waiter) -> int:
        """Take the records in; gives the offset of the first."""
        first = self._base_offset + len(self.records)
        self.records.extend(records)
        self.waiters.append(waiter)
        self._size += size
        return first


class AdaptiveLinger:
    """Whether a batch waits for operations to share it: not at all, for so long, or (-1) as long as the loop's turn.

    With -1 nobody waits for company that did not come the last times; now and then a batch does, to see whether some
    comes again.
    """

    __slots__ = ("_alone", "_linger_ms")

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._alone = 0
        """Batches in a row that held one operation, or were not given the time to hold more."""

    def linger_ms(self) -> int | None:
        """For how long the batch that begins now is to wait; None: not at all."""
        if self._linger_ms >= 0:
            return self._linger_ms or None
        if self._alone < _ALONE_AFTER or self._alone % _LOOK_EVERY == 0:
            return 0
        self._alone += 1
        return None

    def found(self, operations: int) -> None:
        """A batch that waited has come to hold so many."""
        self._alone = self._alone + 1 if operations == 1 else 0


_ALONE_AFTER: Final = 4
_LOOK_EVERY: Final = 16


def build_plain(records: Sequence[Encoded], now_ms: int, compression: Compression) -> bytes:
    return _build(records, now_ms, compression, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)


def build_transactional(
    records: Sequence[Encoded], now_ms: int, compression: Compression, producer_id: int, producer_epoch: int
) -> bytes:
    """A batch of a transaction. The coordinator writes it, not the producer: its sequence is not looked at."""
    return _build(records, now_ms, compression, producer_id, producer_epoch, 0)


def _build(
    records: Sequence[Encoded],
    now_ms: int,
    compression: Compression,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    """All records are of one moment and none has headers: that needs less than any batch may need."""
    parts: list[bytes] = []
    for index, (key, value) in enumerate(records):
        tail = _NULL if value is None else _varint(len(value)) + value
        record = b"".join((_BEGIN, _varint(index), _varint(len(key)), key, tail, _NO_HEADERS))
        parts += (_varint(len(record)), record)
    body = b"".join(parts)
    return assemble(
        compress(compression, body) if compression else body,
        base_offset=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        attributes=compression | (TRANSACTIONAL_FLAG if producer_id != NO_PRODUCER_ID else 0),
        last_offset_delta=len(records) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )


def _varint(value: int) -> bytes:
    if value < len(_VARINTS):
        return _VARINTS[value]
    return _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_VARINTS: Final = tuple(map(_encode_varint, range(512)))
_BEGIN: Final = b"\0\0"
"""No attributes, and the time of the batch."""
_NULL: Final = _encode_varint(-1)
_NO_HEADERS: Final = b"\0"
