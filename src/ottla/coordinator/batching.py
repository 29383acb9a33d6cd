"""Records of several operations on their way into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.coordinator.waiters import Waiter
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import HEADER_SIZE, build_batch
from ottla.records.codecs import Compression
from ottla.records.record import Record

Encoded = tuple[bytes, bytes | None]

_RECORD_OVERHEAD: Final = 24
"""An upper bound of what a record takes beside its key and value: lengths, attributes and deltas."""


def size_of(records: Sequence[Encoded]) -> int:
    """No less than what the records take in a batch."""
    return sum(len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD for key, value in records)


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

    def has_room_for(self, records: Sequence[Encoded]) -> bool:
        return self._size + size_of(records) <= self._max_bytes

    def check_fits(self, records: Sequence[Encoded]) -> None:
        """Raise when the records of one operation are more than a batch may hold."""
        size = HEADER_SIZE + size_of(records)
        if size > self._max_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"an operation's records take {size} bytes, more than the {self._max_bytes} of a batch",
            )

    def add(self, records: Sequence[Encoded], waiter: Waiter) -> int:
        """Take the records in; gives the offset of the first."""
        first = self._base_offset + len(self.records)
        self.records.extend(records)
        self.waiters.append(waiter)
        self._size += size_of(records)
        return first


def build_plain(records: Sequence[Encoded], now_ms: int, compression: Compression) -> bytes:
    return build_batch(
        [Record(index, now_ms, key, value) for index, (key, value) in enumerate(records)],
        compression=compression,
    )


def build_transactional(
    records: Sequence[Encoded], now_ms: int, compression: Compression, producer_id: int, producer_epoch: int
) -> bytes:
    """A batch of a transaction. The coordinator writes it, not the producer: its sequence is not looked at."""
    return build_batch(
        [Record(index, now_ms, key, value) for index, (key, value) in enumerate(records)],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
