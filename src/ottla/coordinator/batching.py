"""Batches of a coordinator: the records of one operation or several, and how long a batch waits for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.coordinator.pending_operation import AnyPendingOperation
from ottla.coordinator.records import Encoded
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
"""An upper bound of the bytes of a record beside its key and value: lengths, attributes and deltas."""


def size_of(records: Sequence[Encoded]) -> int:
    """An upper bound of the bytes of the records in a batch."""
    size = 0
    for key, value in records:
        size += len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
    return size


def check_fits(size: int, max_bytes: int) -> None:
    """Raise when the records of one operation (see `size_of`) exceed the largest batch."""
    size += HEADER_SIZE
    if size > max_bytes:
        raise ApiException(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The records of one operation take {size} bytes; a batch may have {max_bytes}",
        )


class OpenBatch:
    """A batch that still accepts records; its timestamp is that of the first operation."""

    __slots__ = ("_base_offset", "_max_bytes", "_size", "now_ms", "operations", "records", "replayed")

    def __init__(self, base_offset: int, now_ms: int, max_bytes: int) -> None:
        self._base_offset = base_offset
        self._max_bytes = max_bytes
        self._size = HEADER_SIZE
        self.now_ms = now_ms
        self.records: list[Encoded] = []
        self.operations: list[AnyPendingOperation] = []
        self.replayed = False
        """Whether records of this batch were replayed."""

    def has_room_for(self, size: int) -> bool:
        return self._size + size <= self._max_bytes

    def add(self, records: Sequence[Encoded], size: int, pending: AnyPendingOperation) -> int:
        """Add the records of an operation; returns the offset of the first."""
        first = self._base_offset + len(self.records)
        self.records.extend(records)
        self.operations.append(pending)
        self._size += size
        return first


class AdaptiveLinger:
    """How long a batch waits for further operations: not at all, a fixed time, or (-1) adaptively.

    With -1 a batch waits for the loop's current turn. After four batches in a row with one operation each it stops
    waiting, except every sixteenth batch, which checks whether operations come together again.
    """

    __slots__ = ("_alone", "_linger_ms")

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._alone = 0
        """Batches in a row that held one operation or did not wait."""

    def linger_ms(self) -> int | None:
        """How long the batch that starts now waits; None: not at all."""
        if self._linger_ms >= 0:
            return self._linger_ms or None
        if self._alone < _ALONE_AFTER or self._alone % _PROBE_EVERY == 0:
            return 0
        self._alone += 1
        return None

    def found(self, operations: int) -> None:
        """Record how many operations a batch that waited has gathered."""
        self._alone = self._alone + 1 if operations == 1 else 0


_ALONE_AFTER: Final = 4
_PROBE_EVERY: Final = 16


def build_plain(records: Sequence[Encoded], now_ms: int, compression: Compression) -> bytes:
    return _build(records, now_ms, compression, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)


def build_transactional(
    records: Sequence[Encoded], now_ms: int, compression: Compression, producer_id: int, producer_epoch: int
) -> bytes:
    """A batch of a transaction. The coordinator writes it, not the producer: its sequence is not checked."""
    return _build(records, now_ms, compression, producer_id, producer_epoch, 0)


def _build(
    records: Sequence[Encoded],
    now_ms: int,
    compression: Compression,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    """Build a batch whose records share one timestamp and have no headers: cheaper than the general builder."""
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
"""No attributes, and a timestamp delta of 0."""
_NULL: Final = _encode_varint(-1)
_NO_HEADERS: Final = b"\0"
