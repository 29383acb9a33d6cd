"""A producer's state in a partition, and the `.snapshot` file of all states: version 1, a CRC-32C, entries.

`producer_state` decides which batches a producer may append.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.records.crc import crc32c

VERSION = 1
BATCHES_KEPT = 5
NO_OFFSET = -1
MAX_SEQUENCE = 0x7FFFFFFF

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """A snapshot file is torn or has an unknown version. An older one, or the log itself, replaces it."""


class BatchMetadata(NamedTuple):
    """The metadata of a producer's batch, to detect a duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """The state of a producer in a partition. Replaced, never changed, once it is in the manager's table."""

    producer_id: int
    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int = NO_OFFSET
    """The first offset of its open transaction in this partition, or -1."""
    batches: list[BatchMetadata] = field(default_factory=list)
    """The last five, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def copy(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
            self.batches[:],
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new epoch begins without batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    def add_batch(self, epoch: int, last_sequence: int, last_offset: int, delta: int, timestamp: int) -> None:
        self.set_epoch(epoch)
        if len(self.batches) == BATCHES_KEPT:
            del self.batches[0]
        self.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        self.last_timestamp = timestamp

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the batch with exactly these sequences."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None


def encode_snapshot(producers: Iterable[ProducerState]) -> bytes:
    entries = []
    for state in producers:
        last = state.batches[-1] if state.batches else None
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else NO_OFFSET,
                last.offset_delta if last else 0,
                state.last_timestamp,
                state.coordinator_epoch,
                state.current_txn_first_offset,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerState]:
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"unknown version {version}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the checksum is wrong")
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if count < 0 or count * _ENTRY.size != len(rows):
        raise CorruptSnapshotError(f"{count} entries do not take {len(rows)} bytes")
    producers = []
    for pid, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first in _ENTRY.iter_unpack(
        rows
    ):
        state = ProducerState(
            pid, epoch, coordinator_epoch, timestamp, txn_first if txn_first >= 0 else NO_OFFSET
        )
        if offset >= 0:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        producers.append(state)
    return producers
