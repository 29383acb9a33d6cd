"""The log of `__cluster_metadata-0` and its snapshots, as one thing that can be replayed from its beginning.

Retention is by snapshots: an old one goes when there are newer ones and the limits are passed, and with it the part of
the log before the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_partition_metadata, write_partition_metadata
from ottla.log.context import LogContext
from ottla.log.files import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import open_log
from ottla.raft.batches import read_batches
from ottla.raft.config import RaftConfig
from ottla.raft.format import FORMAT_SNAPSHOT
from ottla.raft.snapshots import (
    SnapshotReader,
    parse_snapshot_name,
    snapshot_name,
    write_snapshot_file,
)
from ottla.raft.types import CLUSTER_METADATA, CommittedBatch, OffsetAndEpoch, RecordSerde
from ottla.records.batch import Buffer, iter_batches
from ottla.wire.uuid import METADATA_TOPIC_ID

_READ_BYTES: Final = 1 << 20


class Position(Enum):
    """How a follower's log stands to its leader's."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class MetadataLog:
    """Appended to and read on the event loop; `flush` and `write_snapshot` may run in any thread."""

    __slots__ = ("_config", "_fs", "_log", "_serde", "_sizes", "_snapshots", "_timestamps", "directory")

    def __init__(
        self, context: LogContext, data_dir: str, config: RaftConfig, serde: RecordSerde, *, may_refill: bool
    ) -> None:
        """Open (and recover) what is in the directory. Blocks. Then call `cut_damage`.

        `may_refill`: nobody counts on what this replica has (it is an observer's, and not synced), so a log that a
        loss of power took the beginning of is emptied, to be fetched again.
        """
        fs = context.fs
        self.directory = f"{data_dir}/{CLUSTER_METADATA}"
        self._fs = fs
        self._config = config
        self._serde = serde
        if not fs.exists(self.directory):
            fs.mkdir(self.directory)
            fs.fsync_dir(data_dir)
        if (
            not fs.exists(f"{self.directory}/{PARTITION_METADATA_FILE}")
            or read_partition_metadata(fs, self.directory) != METADATA_TOPIC_ID
        ):
            # The directory's name is reserved, so its topic id is certain, whatever a crash left of the file.
            write_partition_metadata(fs, self.directory, METADATA_TOPIC_ID, sync=True)
        # Recovery reads the whole log and finds the epochs in it. The file of them is not synced at each change, and
        # must not make recovery doubt batches that were.
        fs.remove(f"{self.directory}/{LEADER_EPOCH_FILE}")
        self._log: PartitionLog = open_log(
            context, self.directory, config.log, clean=False, foreign=True, topic_id=METADATA_TOPIC_ID
        )
        self._snapshots: list[OffsetAndEpoch] = []
        self._sizes: dict[OffsetAndEpoch, int] = {}
        self._timestamps: dict[OffsetAndEpoch, int] = {}
        self._recover_snapshots(may_refill)
        self._close_gaps(context.now_ms())
        self._reach_snapshot()

    def _close_gaps(self, now_ms: int) -> None:
        """A loss of power may take the end of one segment and leave the next, or undo half of a deletion."""
        latest = self.latest_snapshot_id
        covered = 0 if latest is None else latest.offset
        for segment, following in reversed(list(pairwise(self._log.segments))):
            end = segment.next_offset()
            if end == following.base_offset:
                continue
            if following.base_offset <= covered:
                # What is before the gap was deleted already, the snapshot has it: finish that.
                self._log.high_watermark = following.base_offset
                self._log.advance_log_start(following.base_offset)
                self._log.delete_old_segments(now_ms)
                return
            # What is after the gap was never durable as a whole, so it was never committed.
            self._log.truncate_to(end)

    def cut_damage(self, newest_epoch: int | None) -> None:
        """Cut the log at the first batch that cannot be where it is: its offset and epoch have no checksum.

        `newest_epoch` is that of the quorum-state file, which is durable before the first batch of its epoch. A batch
        that alone has a later one is damaged, or (with an older file put back) the leader change of that epoch. What
        a snapshot covers was on disk before it, and is not looked at.
        """
        latest = self.latest_snapshot_id
        offset = self._log.log_start_offset if latest is None else latest.offset
        epoch, end = 0, self._log.log_end_offset
        doubtful: int | None = None
        while offset < end:
            for _, header in iter_batches(self._slice(offset, end)):
                own_epoch = header.partition_leader_epoch
                if header.base_offset != offset or own_epoch < epoch:
                    self._log.truncate_to(offset if doubtful is None else doubtful)
                    return
                if own_epoch == epoch:
                    doubtful = None
                elif newest_epoch is not None and own_epoch > newest_epoch:
                    doubtful = offset
                offset, epoch = header.next_offset, own_epoch
        if doubtful is not None:
            self._log.truncate_to(doubtful)

    def _recover_snapshots(self, may_refill: bool) -> None:
        start = self._log.log_start_offset
        found = {
            name: parsed for name in self._fs.listdir(self.directory) if (parsed := parse_snapshot_name(name))
        }
        newest = max((snapshot_id for snapshot_id, finished in found.values() if finished), default=None)
        if start > 0 and (newest is None or newest.offset < start):
            if not may_refill:
                raise ApiException(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self.directory}: the log begins at offset {start}, but there is no snapshot of what came before",
                )
            start = 0 if newest is None else newest.offset
            self._log.truncate_fully_and_start_at(start)
        for name, (snapshot_id, finished) in found.items():
            if finished and snapshot_id.offset >= start:
                self._remember(snapshot_id, self._fs.stat(f"{self.directory}/{name}").size)
            else:
                self._fs.remove(f"{self.directory}/{name}")
        self._reach_snapshot()

    def _reach_snapshot(self) -> None:
        """A snapshot was loaded from the leader, and the node stopped before the log was emptied for it."""
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset > self._log.log_end_offset:
            self._log.truncate_fully_and_start_at(latest.offset)

    def _remember(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        self._snapshots = sorted({*self._snapshots, snapshot_id})
        self._sizes[snapshot_id] = size

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def size(self) -> int:
        """Bytes of the log, without the snapshots."""
        return self._log.size

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends, and the epoch of its last record."""
        epoch = self._log.leader_epochs.latest_epoch
        latest = self.latest_snapshot_id
        if latest is not None and latest.offset == self._log.log_end_offset:
            epoch = latest.epoch
        return OffsetAndEpoch(self._log.log_end_offset, max(epoch, 0))

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._snapshots[-1] if self._snapshots else None

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return SnapshotReader(self._fs, f"{self.directory}/{snapshot_name(snapshot_id)}", self._serde)

    def append(self, batch: bytes, epoch: int) -> None:
        """Append a batch that carries its offset and epoch. Durable only after `flush`."""
        self._log.append_as_follower(batch, epoch)

    def read(self, start: int, end: int) -> Iterator[tuple[CommittedBatch, Sequence[tuple[int, Any]]]]:
        """The batches from one offset up to another, each with its control messages."""
        offset = start
        while offset < end:
            for batch, control in read_batches(self._slice(offset, end), self._serde, self.directory):
                yield batch, control
                offset = batch.next_offset

    def control_messages(self, start: int) -> Iterator[tuple[int, Any]]:
        """The control messages from an offset to the end, with their offsets; data batches are only skipped over."""
        offset, end = start, self._log.log_end_offset
        while offset < end:
            buf = self._slice(offset, end)
            for pos, header in iter_batches(buf):
                if header.is_control:
                    one = buf[pos : pos + header.size_in_bytes]
                    for _, control in read_batches(one, self._serde, self.directory):
                        yield from control
                offset = header.next_offset

    def _slice(self, offset: int, end: int) -> memoryview:
        buf = self._log.read(offset, _READ_BYTES, upper_offset=end).records
        if not buf:
            raise ApiException(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: nothing can be read at offset {offset}"
            )
        return buf

    # What a leader looks up for those that fetch, and a follower does with what it gets

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._snapshots[0] if self._snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch up to this one, and where it ends; where that is not known, the end of the log."""
        found, end_offset = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if found < 0 or end_offset < 0:
            return self.end
        earliest = self.earliest_snapshot_id
        if earliest is not None and end_offset == earliest.offset and found == epoch:
            # The log begins with the next epoch: what came before it is the snapshot.
            return earliest
        return OffsetAndEpoch(end_offset, found)

    def check_position(self, offset: int, epoch: int) -> tuple[Position, OffsetAndEpoch]:
        """Whether a log that ends at this offset, after a record of this epoch, is a beginning of this one."""
        start, latest = self._log.log_start_offset, self.latest_snapshot_id
        if offset == 0 and latest is not None and latest != FORMAT_SNAPSHOT:
            # An empty log: the snapshot is the shorter way.
            return Position.SNAPSHOT, latest
        if start == 0 and offset == 0:
            return Position.VALID, OffsetAndEpoch(0, 0)
        earliest = self.earliest_snapshot_id
        if (
            earliest is not None
            and latest is not None
            and (offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch)
        ):
            return Position.SNAPSHOT, latest
        end = self.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Position.DIVERGING, end
        return Position.VALID, OffsetAndEpoch(offset, epoch)

    def fetch(self, offset: int, max_bytes: int) -> Buffer:
        """Bytes of batches from an offset on, the last perhaps cut off; at least one whole batch if there is one."""
        end = self._log.log_end_offset
        return b"" if offset >= end else self._log.read(offset, max_bytes, upper_offset=end).records

    def append_fetched(self, records: Buffer, epoch: int) -> list[tuple[int, Any]]:
        """Append what a leader of this epoch gave; gives the control messages in it with their offsets."""
        start = self._log.log_end_offset
        self._log.append_as_follower(records, epoch)
        return list(self.control_messages(start))

    def truncate_to_end_of(self, end: OffsetAndEpoch) -> int:
        """Drop what the leader does not have: it says where this epoch ends with it. Gives the new end."""
        offset = end.offset
        if end.epoch > 0:
            own = self.end_of_epoch(end.epoch)
            offset = min(own.offset, end.offset) if own.epoch == end.epoch else own.offset
        self._log.truncate_to(offset)
        return self._log.log_end_offset

    def start_at(self, snapshot_id: OffsetAndEpoch, size: int, last_timestamp: int) -> None:
        """A snapshot of the leader's is here: the log goes on behind it, and what it had is forgotten."""
        self.add_snapshot(snapshot_id, size, last_timestamp)
        self._log.truncate_fully_and_start_at(snapshot_id.offset)
        older = [s for s in self._snapshots if s != snapshot_id]
        self._snapshots = [snapshot_id]
        for expired in older:
            self._fs.remove(f"{self.directory}/{snapshot_name(expired)}")
            self._sizes.pop(expired, None)
            self._timestamps.pop(expired, None)

    def has_snapshot(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id in self._snapshots

    def snapshot_slice(self, snapshot_id: OffsetAndEpoch, position: int, size: int) -> tuple[int, Buffer]:
        """The size of a snapshot's file, and a part of it."""
        file = self._fs.open(f"{self.directory}/{snapshot_name(snapshot_id)}")
        try:
            whole = file.size()
            return whole, file.pread(min(size, whole - position), position) if position < whole else b""
        finally:
            file.close()

    def flush(self, end_offset: int) -> None:
        """Make everything below this offset durable. Blocks."""
        while self._log.recovery_point < end_offset:
            # A flush that met a segment being deleted gives up without an error.
            self._log.flush(end_offset)

    def set_high_watermark(self, offset: int) -> None:
        self._log.high_watermark = offset

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, buffers: Iterable[bytes]) -> int:
        """Write a snapshot file; `add_snapshot` it afterwards. Blocks."""
        # A loss of power must not leave a snapshot of records whose batches are damaged: recovery trusts those.
        self.flush(snapshot_id.offset)
        return write_snapshot_file(self._fs, self.directory, snapshot_name(snapshot_id), buffers)

    def add_snapshot(self, snapshot_id: OffsetAndEpoch, size: int, last_timestamp: int) -> None:
        """A snapshot was written: older ones may go now."""
        self._remember(snapshot_id, size)
        self._timestamps[snapshot_id] = last_timestamp

    def clean(self, now_ms: int) -> None:
        """Delete snapshots past the limits, but never the latest, and the log before the oldest that is left."""
        while len(self._snapshots) > 1 and self._past_limits(self._snapshots[0], now_ms):
            expired = self._snapshots.pop(0)
            # Whatever is in a snapshot is committed, also while a follower does not know yet how much more is.
            self._log.high_watermark = max(self._log.high_watermark, self._snapshots[0].offset)
            self._log.advance_log_start(self._snapshots[0].offset)
            self._log.delete_old_segments(now_ms)
            self._fs.remove(f"{self.directory}/{snapshot_name(expired)}")
            del self._sizes[expired]
            self._timestamps.pop(expired, None)

    def _past_limits(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> bool:
        config = self._config
        if 0 <= config.max_retention_bytes < self._log.size + sum(self._sizes.values()):
            return True
        if config.max_retention_ms < 0:
            return False
        timestamp = self._timestamps.get(snapshot_id)
        if timestamp is None:
            timestamp = self.read_snapshot(snapshot_id).last_contained_log_timestamp
            self._timestamps[snapshot_id] = timestamp
        return now_ms - timestamp > config.max_retention_ms

    def close(self) -> None:
        self._log.close()
