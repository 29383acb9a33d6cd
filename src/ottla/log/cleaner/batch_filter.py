"""Decides which batches and records survive a cleaning, and rewrites batches that lose records.

Pure: takes batches and the state of keys, transactions and producers, returns bytes. As in Kafka, a batch keeps its
first and last offset, its producer and its sequence. Tombstones and markers stay until the delete horizon, which the
first cleaning that meets them writes into their batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla.limits import MAX_UNPACKED_BATCH_BYTES
from ottla.log.cleaner.offset_map import OffsetMap, key_of
from ottla.log.cleaner.transactions import CleanedTransactionMetadata
from ottla.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    assemble,
    build_empty_batch,
    check_crc,
    record_bytes,
)
from ottla.records.codecs import compress
from ottla.records.record import RawRecord, iter_raw, read_varint, write_varint


class LastRecord(NamedTuple):
    """The last write of an active producer: the last offset of its data, or -1 for a marker of this epoch."""

    last_data_offset: int
    epoch: int


class _Fate(Enum):
    DELETE = "removed"
    DELETE_EMPTY = "removed if no record stays"
    RETAIN_EMPTY = "stays, even without records"


@dataclass(slots=True)
class FilterStats:
    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0
    """Records without a key, which a compacted topic cannot keep."""


class BatchFilter:
    """Filters the batches of one cleaning, in the order of the log."""

    __slots__ = ("_delete_retention_ms", "_map", "_now_ms", "_producers", "_upper_bound", "stats", "txns")

    def __init__(
        self,
        offset_map: OffsetMap,
        txns: CleanedTransactionMetadata,
        producers: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
    ) -> None:
        self._map = offset_map
        self.txns = txns
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._upper_bound = upper_bound
        """The end of the cleaning: the batch that ends there stays, to preserve the last offset."""
        self.stats = FilterStats()

    def apply(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Return the batch unchanged, rewritten, or None if it is removed."""
        if not check_crc(batch, 0, header):
            raise CorruptBatchError(f"batch at offset {header.base_offset} does not match its checksum")
        data = record_bytes(batch, 0, header, MAX_UNPACKED_BATCH_BYTES) if header.count else b""
        discard, is_done_marker = self._judge(header, data)
        fate = self._fate(header, discard)
        self.stats.records_read += header.count
        if fate is _Fate.DELETE:
            return None
        kept, lost, has_tombstone = self._sift(header, data, discard)
        self.stats.records_kept += len(kept)
        if not kept:
            return build_empty_batch(header) if fate is _Fate.RETAIN_EMPTY else None
        set_horizon = (has_tombstone or is_done_marker) and not header.has_delete_horizon
        if not lost and not set_horizon:
            return batch
        horizon = self._now_ms + self._delete_retention_ms if set_horizon else None
        return _rebuild(header, data, kept, horizon)

    def _judge(self, header: BatchHeader, data: bytes) -> tuple[bool, bool]:
        """Return (whether all records are removed, whether it is the marker of a removed transaction)."""
        if not header.is_control:
            return self.txns.is_aborted(header), False
        done = self.txns.is_marker_done(header, control_type(data, header.count))
        horizon = header.delete_horizon_ms
        return done and horizon is not None and horizon <= self._now_ms, done

    def _fate(self, header: BatchHeader, discard: bool) -> _Fate:
        if header.next_offset == self._upper_bound or self._is_last_of_producer(header):
            return _Fate.RETAIN_EMPTY
        return _Fate.DELETE if discard else _Fate.DELETE_EMPTY

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether the batch has the last sequence or epoch of an active producer."""
        if not header.has_producer_id:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _sift(self, header: BatchHeader, data: bytes, discard: bool) -> tuple[list[RawRecord], bool, bool]:
        """Return (the records that stay, whether any are removed, whether a tombstone stays)."""
        if discard:
            return [], True, False
        if header.is_control:
            return list(iter_raw(data, header.count)), False, False
        base_offset = header.base_offset
        horizon = header.delete_horizon_ms
        keep_tombstones = horizon is None or self._now_ms < horizon
        latest = self._map.latest_offset
        offsets = self._map.offsets
        kept: list[RawRecord] = []
        has_tombstone = False
        for raw in iter_raw(data, header.count):
            offset = base_offset + raw[1]
            if offset <= latest:
                key = raw[2]
                if key is None:
                    self.stats.keyless += 1
                    continue
                if offset < offsets.get(key if len(key) < 20 else key_of(key), -1):
                    continue
                if raw[4] < 0 and not keep_tombstones:
                    continue
            if raw[4] < 0:
                has_tombstone = True
            kept.append(raw)
        return kept, len(kept) != header.count, has_tombstone


def control_type(data: bytes, count: int) -> int | None:
    """Return the type of a control batch's record, or None if the record was removed."""
    if count <= 0:
        return None
    key = next(iter_raw(data, count))[2]
    if key is None or len(key) < 4:
        raise CorruptBatchError("a control record has no type")
    return int.from_bytes(key[2:4], "big", signed=True)


def _rebuild(header: BatchHeader, data: bytes, kept: list[RawRecord], horizon: int | None) -> bytes:
    """Return the batch with the records that stay. A delete horizon replaces the base timestamp."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if horizon is None:
        body = b"".join([data[raw[5] : raw[6]] for raw in kept])
    else:
        body = _shift_timestamps(data, kept, base_timestamp - horizon)
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = horizon
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + max(raw[0] for raw in kept))
    codec = attributes & CODEC_MASK
    return assemble(
        compress(codec, body) if codec else body,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=len(kept),
    )


def _shift_timestamps(data: bytes, kept: list[RawRecord], shift: int) -> bytes:
    """Return the records with shifted timestamp deltas; the rest is copied."""
    out = bytearray()
    for timestamp_delta, _, _, _, _, start, end in kept:
        _, pos = read_varint(data, start)
        _, rest = read_varint(data, pos + 1)
        body = bytearray(data[pos : pos + 1])
        write_varint(body, timestamp_delta + shift)
        body += data[rest:end]
        write_varint(out, len(body))
        out += body
    return bytes(out)
