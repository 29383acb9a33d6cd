"""The idempotent and transactional producers of a partition: sequences, duplicates, open transactions, snapshots.

A batch is first checked against a staged copy of its producer's state (`stage`); after it is written, `commit`
makes the staged state the known one. Replaying the log does the same without the checks.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ottla.errors import ApiException, ErrorCode
from ottla.log.files import SNAPSHOT_SUFFIX, stem
from ottla.log.fs import Buffer, Fs
from ottla.log.producer_snapshot import (
    MAX_SEQUENCE,
    NO_OFFSET,
    BatchMetadata,
    CorruptSnapshotError,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
)
from ottla.log.types import AbortedTxn, AppendOrigin, TopicPartition
from ottla.log.verification import VerificationGuard, Verifications
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader, iter_records

_EPOCH_MAX = 0x7FFF
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1
_PLAIN_MARKER = struct.Struct(">5shhBhiB")
"""The only record of a marker as all brokers write it: lengths, no deltas, key and value, no headers."""
_PLAIN_BEGIN = b"\x20\0\0\0\x08"
_PLAIN_VALUE_SIZE = 12


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Staged:
    """Changes of producer state by an append. They take effect after the batches are written."""

    producers: dict[int, ProducerState] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    """First offsets of the transactions that begin."""
    completed: list[CompletedTxn] = field(default_factory=list)


class ProducerStateManager:
    """The producers of one partition. DescribeProducers shows `active`."""

    __slots__ = (
        "_directory",
        "_fs",
        "_ongoing",
        "_producers",
        "_snapshot_offset",
        "_snapshots",
        "_topic_partition",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "expiration_ms",
    )

    def __init__(
        self,
        fs: Fs,
        directory: str,
        topic_partition: TopicPartition,
        expiration_ms: int,
        snapshots: Iterable[int] = (),
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._topic_partition = topic_partition
        self.expiration_ms = expiration_ms
        self._producers: dict[int, ProducerState] = {}
        self._ongoing: list[tuple[int, int]] = []
        """(first offset, producer id) of open transactions, ascending."""
        self._unreplicated: list[tuple[int, int]] = []
        """(first, last offset) of transactions that ended at or above the high watermark."""
        self._verifications = Verifications()
        self._snapshots = sorted(snapshots)
        self._snapshot_offset = 0
        self.end_offset = 0
        """The state covers the log up to here."""

    @property
    def active(self) -> Mapping[int, ProducerState]:
        return MappingProxyType(self._producers)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshots)

    # -- transactions -------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or ended above the high watermark."""
        ongoing, unreplicated = self._ongoing, self._unreplicated
        if not unreplicated:
            return ongoing[0][0] if ongoing else None
        first = min(unreplicated)[0]
        return min(first, ongoing[0][0]) if ongoing else first

    def on_high_watermark(self, high_watermark: int) -> None:
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= high_watermark]

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partitions: bool
    ) -> VerificationGuard | None:
        """Return a guard for a batch whose transaction the coordinator must confirm; None if it is open here already.

        Raises INVALID_PRODUCER_EPOCH for a producer that was overtaken.
        """
        state = self._producers.get(producer_id)
        if state is not None:
            self._check_epoch(state, epoch)
            if state.epoch == epoch and state.current_txn_first_offset != NO_OFFSET:
                return None
        return self._verifications.start(
            producer_id, epoch, sequence, now_ms, adds_partitions=adds_partitions
        )

    def check_verified(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Refuse a transactional batch that would begin an unverified transaction."""
        state = self._producers.get(header.producer_id)
        if state is not None:
            if state.epoch == header.producer_epoch and state.current_txn_first_offset != NO_OFFSET:
                return
            self._check_epoch(state, header.producer_epoch)
        if not self._verifications.holds(header.producer_id, guard):
            raise ApiException(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._topic_partition} is not part of a transaction of producer {header.producer_id}",
            )

    def _check_epoch(self, state: ProducerState, epoch: int) -> None:
        if epoch < state.epoch:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self._topic_partition}: producer {state.producer_id} has epoch {state.epoch}, the batch {epoch}",
            )

    # -- appending ----------------------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the original of a duplicate batch, if it is among its producer's last five."""
        state = self._producers.get(header.producer_id)
        if state is None:
            return None
        return state.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)

    def stage(
        self,
        staged: Staged,
        header: BatchHeader,
        batch: Buffer,
        base_offset: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
    ) -> None:
        """Check a batch that will begin at `base_offset` and stage its changes. Raises ApiException."""
        producer_id = header.producer_id
        state = staged.producers.get(producer_id)
        if state is None:
            known = self._producers.get(producer_id)
            state = ProducerState(producer_id) if known is None else known.copy()
        if header.is_control:
            self._stage_marker(staged, state, header, batch, base_offset, origin, transaction_version)
        else:
            self._stage_data(staged, state, header, base_offset, origin)
        if header.is_transactional:
            self._verifications.appended(header)
        staged.producers[producer_id] = state

    def _stage_data(
        self,
        staged: Staged,
        state: ProducerState,
        header: BatchHeader,
        base_offset: int,
        origin: AppendOrigin,
    ) -> None:
        epoch = header.producer_epoch
        if origin is not AppendOrigin.REPLICATION:
            self._check_epoch(state, epoch)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(state, header)
        delta = header.last_offset_delta
        state.add_batch(epoch, header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        transactional = header.is_transactional
        if transactional and state.current_txn_first_offset == NO_OFFSET:
            state.current_txn_first_offset = base_offset
            staged.started.append(base_offset)
        elif not transactional and state.current_txn_first_offset != NO_OFFSET:
            raise ApiException(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._topic_partition}: producer {state.producer_id} has an open transaction, "
                "so its batches must be transactional",
            )

    def _check_sequence(self, state: ProducerState, header: BatchHeader) -> None:
        epoch, sequence = header.producer_epoch, header.base_sequence
        expected = self._verifications.expected_sequence(header, known=bool(state.batches))
        if expected is None:
            if state.epoch == -1:
                # The producer is unknown (new or expired): it may begin with any sequence.
                return
            if epoch != state.epoch:
                expected = 0
            else:
                last = state.last_sequence
                expected = 0 if last == MAX_SEQUENCE else last + 1
            if sequence == expected:
                return
        raise ApiException(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{self._topic_partition}: producer {state.producer_id} (epoch {epoch}) sent sequence {sequence}, "
            f"expected {expected}",
        )

    def _stage_marker(
        self,
        staged: Staged,
        state: ProducerState,
        header: BatchHeader,
        batch: Buffer,
        base_offset: int,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> None:
        marker = _read_marker(header, batch)
        if marker is None:
            return
        kind, coordinator_epoch, timestamp = marker
        if origin is not AppendOrigin.REPLICATION:
            self._check_marker(state, header.producer_epoch, coordinator_epoch, transaction_version)
        if state.current_txn_first_offset != NO_OFFSET:
            staged.completed.append(
                CompletedTxn(state.producer_id, state.current_txn_first_offset, base_offset, kind == _ABORT)
            )
        state.set_epoch(header.producer_epoch)
        state.coordinator_epoch = coordinator_epoch
        state.current_txn_first_offset = NO_OFFSET
        state.last_timestamp = timestamp

    def _check_marker(
        self, state: ProducerState, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        # From transaction version 2 on every transaction bumps the epoch, so a marker's is higher, except for
        # the retry of a marker whose transaction is complete.
        repeated = epoch == state.epoch and (
            state.current_txn_first_offset == NO_OFFSET or epoch == _EPOCH_MAX
        )
        stale = epoch <= state.epoch and not repeated if transaction_version >= 2 else epoch < state.epoch
        if stale:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self._topic_partition}: producer {state.producer_id} has epoch {state.epoch}, the marker {epoch}",
            )
        if coordinator_epoch < state.coordinator_epoch:
            raise ApiException(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self._topic_partition}: marker of coordinator epoch {coordinator_epoch}, "
                f"{state.coordinator_epoch} is known",
            )

    def commit(self, staged: Staged, end_offset: int) -> list[AbortedTxn]:
        """Apply the staged changes. Returns the aborted transactions for the transaction index."""
        self._producers.update(staged.producers)
        aborted: list[AbortedTxn] = []
        if staged.started or staged.completed:
            aborted = self._commit_transactions(staged)
        self.end_offset = end_offset
        return aborted

    def _commit_transactions(self, staged: Staged) -> list[AbortedTxn]:
        owners = {}
        for state in staged.producers.values():
            owners[state.current_txn_first_offset] = state.producer_id
        for completed in staged.completed:
            owners[completed.first_offset] = completed.producer_id
        for first_offset in staged.started:
            insort(self._ongoing, (first_offset, owners[first_offset]))
        aborted = []
        for txn in staged.completed:
            if txn.aborted:
                stable = next(
                    (first for first, pid in self._ongoing if pid != txn.producer_id), txn.last_offset + 1
                )
                aborted.append(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable))
            self._ongoing = [entry for entry in self._ongoing if entry[0] != txn.first_offset]
            self._unreplicated.append((txn.first_offset, txn.last_offset))
        return aborted

    def replay(self, header: BatchHeader, batch: Buffer) -> list[AbortedTxn]:
        """Update the state from a batch in the log, as recovery and followers do."""
        if header.producer_id < 0:
            self.end_offset = header.next_offset
            return []
        staged = Staged()
        self.stage(staged, header, batch, header.base_offset, AppendOrigin.REPLICATION)
        return self.commit(staged, header.next_offset)

    # -- expiry, truncation -------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Remove the producers without an open transaction that were idle for `producer.id.expiration.ms`."""
        self._verifications.expire(now_ms - self.expiration_ms)
        if self._producers:
            self._producers = {
                pid: state for pid, state in self._producers.items() if not self._expired(state, now_ms)
            }

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        return (
            state.current_txn_first_offset == NO_OFFSET
            and now_ms - state.last_timestamp >= self.expiration_ms
        )

    def on_log_start(self, log_start_offset: int) -> None:
        self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    def clear(self, offset: int) -> None:
        """Remove all state, files included: the log restarts at an offset."""
        self._forget()
        self._drop(self._snapshots)
        self._snapshot_offset = 0
        self.end_offset = offset

    def _forget(self) -> None:
        self._producers = {}
        self._verifications.clear()
        self._ongoing = []
        self._unreplicated = []

    def reload(
        self, log_start_offset: int, end_offset: int, now_ms: int, *, keep_files: bool = False
    ) -> None:
        """Load the newest snapshot within (log start, end]. The caller replays the log from `end_offset`.

        Snapshots outside are removed, unless `keep_files`: then a later scan may still confirm them.
        """
        if not keep_files:
            self._drop(s for s in self._snapshots if s > end_offset or s <= log_start_offset)
        self._forget()
        for newest in [s for s in reversed(self._snapshots) if log_start_offset < s <= end_offset]:
            try:
                states = decode_snapshot(self._fs.read_bytes(self._path(newest)))
            except (CorruptSnapshotError, FileNotFoundError):
                self._drop([newest])
                continue
            for state in states:
                if not self._expired(state, now_ms):
                    self._producers[state.producer_id] = state
                    if state.current_txn_first_offset != NO_OFFSET:
                        insort(self._ongoing, (state.current_txn_first_offset, state.producer_id))
            self._snapshot_offset = self.end_offset = newest
            return
        self._snapshot_offset = self.end_offset = log_start_offset

    def drop_snapshots_after(self, offset: int) -> None:
        self._drop(s for s in self._snapshots if s > offset)

    def _drop(self, snapshots: Iterable[int]) -> None:
        for snapshot in list(snapshots):
            self._fs.remove(self._path(snapshot))
            self._snapshots.remove(snapshot)

    # -- snapshots ----------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Write a snapshot at `end_offset`, unless it exists."""
        if self.end_offset <= self._snapshot_offset:
            return
        self._fs.write_bytes(self._path(self.end_offset), encode_snapshot(self._producers.values()))
        if self.end_offset not in self._snapshots:
            insort(self._snapshots, self.end_offset)
        self._snapshot_offset = self.end_offset

    def forget_snapshot(self, offset: int) -> str | None:
        """Forget the snapshot at a segment's base offset. Returns its path for the caller to remove."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        return self._path(offset)

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots at base offsets of segments, and the newest if it is past all of them."""
        bases = set(segment_base_offsets)
        last = max(bases, default=NO_OFFSET)
        strays = [s for s in self._snapshots if s not in bases]
        self._drop(s for s in strays if s != strays[-1] or s < last)

    def moved_to(self, directory: str) -> None:
        self._directory = directory

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{stem(offset)}{SNAPSHOT_SUFFIX}"


def _read_marker(header: BatchHeader, batch: Buffer) -> tuple[int, int, int] | None:
    """Return (abort or commit, coordinator epoch, timestamp); None for control batches of other types."""
    if header.size_in_bytes == HEADER_SIZE + _PLAIN_MARKER.size and not (
        header.attributes & (CODEC_MASK | LOG_APPEND_TIME_FLAG)
    ):
        begin, _, kind, size, _, coordinator_epoch, _ = _PLAIN_MARKER.unpack_from(batch, HEADER_SIZE)
        if begin == _PLAIN_BEGIN and size == _PLAIN_VALUE_SIZE:
            return (kind, coordinator_epoch, header.base_timestamp) if kind in (_ABORT, _COMMIT) else None
    record = next(iter_records(batch, 0, header), None)
    if record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"\0" * _MARKER_VALUE.size)
    return kind, coordinator_epoch, record.timestamp
