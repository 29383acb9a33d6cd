"""The log of `__cluster_metadata-0` together with its snapshots: it can always be replayed from the beginning.

Snapshots decide the retention. When the limits are exceeded and a newer snapshot exists, the oldest snapshot is deleted
with the part of the log before the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_partition_metadata, write_partition_metadata
from ottla.log.context import LogContext
from ottla.log.files import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import open_log
from ottla.raft.batches import ControlMessages, read_batches
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
from ottla.wire.classes import WireMessage
from ottla.wire.uuid import METADATA_TOPIC_ID

_READ_BYTES: Final = 1 << 20


class Position(Enum):
    """How a follower's log relates to its leader's."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class MetadataLog:
    """Appends and reads happen on the event loop; `flush` and `write_snapshot` may run in any thread."""

    __slots__ = ("_config", "_fs", "_log", "_serde", "_sizes", "_snapshots", "_timestamps", "directory")

    def __init__(
        self, context: LogContext, data_dir: str, config: RaftConfig, serde: RecordSerde, *, may_refill: bool
    ) -> None:
        """Open the directory and recover its files. Blocks. Then call `truncate_damage`.

        `may_refill`: this replica is an observer and its log is not synced, so no other node depends on it. A log that
        lost its beginning in a power failure is then emptied and fetched again.
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
            # The directory's name is reserved, so its topic id is certain even if a crash damaged the file.
            write_partition_metadata(fs, self.directory, METADATA_TOPIC_ID, sync=True)
        # Recovery reads the whole log and finds the epochs in it. The epoch file is not synced at each change, so it
        # must not make recovery reject batches that were synced.
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
        """Repair what a power failure can leave: a segment without its end before the next, or half of a deletion."""
        latest = self.latest_snapshot_id
        covered = 0 if latest is None else latest.offset
        for segment, following in reversed(list(pairwise(self._log.segments))):
            end = segment.next_offset()
            if end == following.base_offset:
                continue
            if following.base_offset <= covered:
                # The deletion of the part before the gap was under way, and a snapshot covers it: finish the deletion.
                self._log.high_watermark = following.base_offset
                self._log.advance_log_start(following.base_offset)
                self._log.delete_old_segments(now_ms)
                return
            # The part after the gap was never completely durable, so it was never committed.
            self._log.truncate_to(end)

    def truncate_damage(self, newest_epoch: int | None) -> None:
        """Truncate the log at the first batch with an impossible offset or epoch, which the checksum does not cover.

        `newest_epoch` is the epoch of the quorum-state file, which is durable before the first batch of that epoch. A
        single batch with a later epoch is damaged, or it is the leader change of that epoch when an older file was
        restored. The part that a snapshot covers was on disk before the snapshot and is not checked.
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
        """Empty the log if the node stopped between loading a snapshot from the leader and emptying the log."""
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
        """The end of the log, and the epoch of its last record."""
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
        """Append a batch that carries its offset and epoch. It is durable after `flush`."""
        self._log.append_as_follower(batch, epoch)

    def read(self, start: int, end: int) -> Iterator[tuple[CommittedBatch, ControlMessages]]:
        """The batches from one offset up to another, each with its control messages."""
        offset = start
        while offset < end:
            for batch, control in read_batches(self._slice(offset, end), self._serde, self.directory):
                yield batch, control
                offset = batch.next_offset

    def control_messages(self, start: int) -> Iterator[tuple[int, WireMessage]]:
        """The control messages from an offset to the end, with their offsets. Data batches are skipped, not decoded."""
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

    # Fetches: the leader's lookups, and what a follower does with a response

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._snapshots[0] if self._snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch up to this one, and where it ends; the end of the log where that is not known."""
        found, end_offset = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if found < 0 or end_offset < 0:
            return self.end
        earliest = self.earliest_snapshot_id
        if earliest is not None and end_offset == earliest.offset and found == epoch:
            # The log begins with the next epoch: the snapshot holds what came before.
            return earliest
        return OffsetAndEpoch(end_offset, found)

    def check_position(self, offset: int, epoch: int) -> tuple[Position, OffsetAndEpoch]:
        """Whether a log that ends at this offset, after a record of this epoch, is a prefix of this one."""
        start, latest = self._log.log_start_offset, self.latest_snapshot_id
        if offset == 0 and latest is not None and latest != FORMAT_SNAPSHOT:
            # The other log is empty: a snapshot brings it up to date faster.
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
        """Batches from an offset on as bytes. The last may be incomplete, but the first never is."""
        end = self._log.log_end_offset
        return b"" if offset >= end else self._log.read(offset, max_bytes, upper_offset=end).records

    def append_fetched(self, records: Buffer, epoch: int) -> list[tuple[int, WireMessage]]:
        """Append batches fetched from the leader of this epoch. Returns their control messages with their offsets."""
        start = self._log.log_end_offset
        self._log.append_as_follower(records, epoch)
        return list(self.control_messages(start))

    def truncate_to_end_of(self, end: OffsetAndEpoch) -> int:
        """Truncate to the end that the leader reports for its epoch. Returns the new end of the log."""
        offset = end.offset
        if end.epoch > 0:
            own = self.end_of_epoch(end.epoch)
            offset = min(own.offset, end.offset) if own.epoch == end.epoch else own.offset
        self._log.truncate_to(offset)
        return self._log.log_end_offset

    def start_at(self, snapshot_id: OffsetAndEpoch, size: int, last_timestamp: int) -> None:
        """Continue the log after a snapshot that came from the leader; everything else is deleted."""
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
        """The size of a snapshot's file, and a part of its content."""
        file = self._fs.open(f"{self.directory}/{snapshot_name(snapshot_id)}")
        try:
            whole = file.size()
            return whole, file.pread(min(size, whole - position), position) if position < whole else b""
        finally:
            file.close()

    def flush(self, end_offset: int) -> None:
        """Make everything below this offset durable. Blocks."""
        while self._log.recovery_point < end_offset:
            # A flush that meets a segment under deletion returns early without an error.
            self._log.flush(end_offset)

    def set_high_watermark(self, offset: int) -> None:
        self._log.high_watermark = offset

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, buffers: Iterable[bytes]) -> int:
        """Write a snapshot file. Blocks. Call `add_snapshot` afterwards."""
        # Recovery trusts a snapshot, so the batches it covers must survive a power failure before it exists.
        self.flush(snapshot_id.offset)
        return write_snapshot_file(self._fs, self.directory, snapshot_name(snapshot_id), buffers)

    def add_snapshot(self, snapshot_id: OffsetAndEpoch, size: int, last_timestamp: int) -> None:
        """Register a snapshot that was written. Older ones may be deleted from now on."""
        self._remember(snapshot_id, size)
        self._timestamps[snapshot_id] = last_timestamp

    def clean(self, now_ms: int) -> None:
        """Delete snapshots past the limits, but never the latest, and the log before the oldest that remains."""
        while len(self._snapshots) > 1 and self._past_limits(self._snapshots[0], now_ms):
            expired = self._snapshots.pop(0)
            # The content of a snapshot is committed, even where a follower does not know the high watermark yet.
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
