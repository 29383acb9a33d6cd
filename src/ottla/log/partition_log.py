"""The log of one partition: assigns offsets, appends, rolls and truncates.

One thread (the event loop) changes it; reads, lookups and `flush` are safe in any thread. `segment` owns positions
and index entries, `log_reader` the lookups, `recovery` the opening of a directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.config.topic import TopicConfig
from ottla.errors import ApiException, ErrorCode
from ottla.log import retention
from ottla.log.batches import ANY_EPOCH, BatchRun, below_the_end, replicated_batches, stamp_batches
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.context import LogContext
from ottla.log.files import CLEANED_SUFFIX, DELETED_SUFFIX
from ottla.log.fs import Buffer
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log_reader import LogReader
from ottla.log.log_segments import LogSegments
from ottla.log.producer_snapshot import BatchMetadata
from ottla.log.producer_state import ProducerStateManager, Staged
from ottla.log.rolling import is_full, max_segment_ms, new_segment, roll_jitter_ms, segment_settings
from ottla.log.segment import AppendedBatch, Segment
from ottla.log.types import NO_TIMESTAMP, AppendInfo, AppendOrigin, TopicPartition
from ottla.log.verification import VerificationGuard
from ottla.records.batch import BatchHeader
from ottla.records.validation import ProducePolicy, ValidatedBatch, finish, validate_produce
from ottla.wire.uuid import ZERO_UUID


class PartitionLog(LogReader):
    """A log in its directory. `recovery.open_log` finds its bounds and creates it."""

    __slots__ = (
        "_context",
        "_cuts",
        "_high_watermark",
        "_max_segment_ms",
        "_synced",
        "config",
        "last_flush_ms",
        "policy",
        "producers",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self,
        context: LogContext,
        path: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        topic_id: bytes,
        segments: LogSegments,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
    ) -> None:
        self._context = context
        self._segments = segments
        self.policy = ProducePolicy.of(config)
        self._max_segment_ms = max_segment_ms(config)
        self._synced = False
        self._cuts = 0
        """The number of truncations: a flush in another thread checks it."""
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._high_watermark = log_start_offset
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self.last_flush_ms = context.now_ms()
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.failed: OSError | None = None
        """The error that made the log or its directory unusable."""

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # -- bounds -------------------------------------------------------------------------------------------

    @property
    def recovery_point_to_keep(self) -> int:
        """The recovery point for the checkpoint: recovery includes the active segment even if it rolls next."""
        point = self.recovery_point
        return point - 1 if point == self.log_end_offset > self._segments.active.base_offset else point

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark(self._high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: all transactions below it are complete. Read_committed consumers read up to it."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self.log_start_offset)

    # -- appending ----------------------------------------------------------------------------------------

    def validate(
        self,
        records: Buffer,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        api_version: int = 13,
    ) -> ValidatedBatch:
        """Check a produced batch. If the result says `offload`, run `finish` in a thread before appending."""
        return validate_produce(
            records,
            self.policy,
            now_ms,
            api_version=api_version,
            from_client=origin is AppendOrigin.CLIENT,
        )

    def append_as_leader(
        self,
        records: Buffer | ValidatedBatch,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        api_version: int = 13,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Validate a batch, assign offsets and epoch, and write it with one call. Raises ApiException.

        The caller may reuse the buffer afterwards. Batches of the raft leader only get their offsets and epoch.
        """
        if origin is AppendOrigin.RAFT_LEADER:
            assert not isinstance(records, ValidatedBatch)
            data, headers = stamp_batches(records, self.log_end_offset, leader_epoch)
            return self._append_stamped(data, headers, now_ms)
        if isinstance(records, ValidatedBatch):
            batch = records
        else:
            batch = self.validate(records, now_ms=now_ms, origin=origin, api_version=api_version)
        if batch.pending:
            batch = finish(batch)
        header = batch.header
        first = self.log_end_offset
        if self.policy.mirror_offsets and origin is AppendOrigin.CLIENT:
            first = header.base_offset
        last = first + header.last_offset_delta
        staged: Staged | None = None
        if header.producer_id >= 0:
            if origin is AppendOrigin.CLIENT:
                original = self.producers.find_duplicate(header)
                if original is not None:
                    return self._duplicate(original)
            if header.is_transactional and not header.is_control:
                self.producers.check_verified(header, guard)
            staged = Staged()
            self.producers.stage(staged, header, batch.view, first, origin, transaction_version)
        if first < self.log_end_offset:
            raise below_the_end(self.topic_partition, first, self.log_end_offset)
        size = header.length + 12
        self._write(
            batch.buffers(first, leader_epoch),
            ((size, last, header.max_timestamp),),
            size,
            first,
            last,
            header.max_timestamp,
            leader_epoch,
            now_ms,
        )
        self._wrote(staged, last + 1)
        if origin is not AppendOrigin.CLIENT and self.flush_due:
            self._context.request_flush(self, last + 1)
        return AppendInfo(
            first, last, batch.log_append_time, self.log_start_offset, False, size, header.count
        )

    def append_laid_out(self, run: BatchRun, leader_epoch: int, now_ms: int) -> None:
        """Append batches with offsets from the log's end on (`lay_out`), with one write: all of them, or none."""
        size, last, top = run.size, run.infos[-1].last_offset, run.max_timestamp
        self._write(run.buffers, run.batches, size, self.log_end_offset, last, top, leader_epoch, now_ms)
        self._wrote(None, last + 1)

    def append_as_follower(self, records: Buffer, leader_epoch: int = ANY_EPOCH) -> AppendInfo:
        """Append whole batches of the leader with their offsets and epochs. Ignores a partial batch at the end.

        Also ignores batches of an epoch after `leader_epoch`, the epoch in which this replica fetched.
        """
        data, headers = replicated_batches(records, self.topic_partition, self.log_end_offset, leader_epoch)
        if not headers:
            return AppendInfo(
                self.log_end_offset, self.log_end_offset - 1, NO_TIMESTAMP, self.log_start_offset
            )
        return self._append_stamped(data, headers, self._context.now_ms())

    def _append_stamped(self, data: Buffer, headers: list[BatchHeader], now_ms: int) -> AppendInfo:
        """Append batches that have their offsets and epochs."""
        staged = Staged()
        position = 0
        view = memoryview(data)
        for header in headers:
            if header.producer_id >= 0:
                batch = view[position : position + header.size_in_bytes]
                self.producers.stage(staged, header, batch, header.base_offset, AppendOrigin.REPLICATION)
            position += header.size_in_bytes
        first, last = headers[0].base_offset, headers[-1].last_offset
        for header in headers:
            self.assign_epoch_start_offset(header.partition_leader_epoch, header.base_offset)
        self._write(
            [data],
            [(header.size_in_bytes, header.last_offset, header.max_timestamp) for header in headers],
            position,
            first,
            last,
            max(header.max_timestamp for header in headers),
            headers[-1].partition_leader_epoch,
            now_ms,
        )
        self._wrote(staged, last + 1)
        if self.flush_due:
            self._context.request_flush(self, last + 1)
        count = sum(header.count for header in headers)
        return AppendInfo(first, last, NO_TIMESTAMP, self.log_start_offset, False, position, count)

    def _write(
        self,
        buffers: Sequence[Buffer],
        batches: Sequence[AppendedBatch],
        size: int,
        first: int,
        last: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        if self.failed is not None:
            raise self._storage_error(self.failed)
        config = self.config
        if size > config.segment_bytes:
            raise ApiException(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.topic_partition}: {size} bytes do not fit a segment of {config.segment_bytes}",
            )
        try:
            self.assign_epoch_start_offset(leader_epoch, first)
            if self.leader_epochs.unwritten:
                self.leader_epochs.write()
            segment = self._segments.active
            waited_ms = segment.waited_for_roll_ms(now_ms, max_timestamp)
            if (segment.size or first != segment.base_offset) and (
                waited_ms > self._max_segment_ms - segment.jitter_ms or is_full(segment, config, size, last)
            ):
                segment = self._roll_at(first)
            segment.append(buffers, batches)
        except OSError as e:
            raise self._fail(e) from e

    def _wrote(self, staged: Staged | None, end: int) -> None:
        self.log_end_offset = end
        if staged is None:
            self.producers.end_offset = end
        else:
            try:
                for txn in self.producers.commit(staged, end):
                    self._segments.active.txn_index.append(txn)
            except OSError as e:
                raise self._fail(e) from e

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` records are unflushed. A client's append is then acknowledged after the flush."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def _duplicate(self, original: BatchMetadata) -> AppendInfo:
        append_time = original.timestamp if self.config.log_append_time else NO_TIMESTAMP
        return AppendInfo(
            original.first_offset, original.last_offset, append_time, self.log_start_offset, duplicate=True
        )

    # -- epochs -------------------------------------------------------------------------------------------

    def assign_epoch_start_offset(self, epoch: int, offset: int) -> None:
        """Record that a leader epoch begins at an offset."""
        if epoch >= 0 and epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(epoch, offset)

    # -- rolling, truncating, deleting --------------------------------------------------------------------

    def roll(self) -> Segment:
        """Begin a new segment at the end of the log, unless the active segment is empty."""
        active = self._segments.active
        if not active.size and active.base_offset == self.log_end_offset:
            return active
        try:
            return self._roll_at(self.log_end_offset)
        except OSError as e:
            raise self._fail(e) from e

    def _roll_at(self, offset: int) -> Segment:
        active = self._segments.active
        active.become_inactive()
        if active.size:
            # Its indexes are not on disk yet, so recovery must begin with this segment.
            self.recovery_point = min(self.recovery_point, offset - 1)
        segment = new_segment(self._context, self.config, self.path, offset)
        self._segments.add(segment)
        self.producers.end_offset = offset
        self.producers.take_snapshot()
        self._context.request_flush(self, offset)
        return segment

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from an offset on; False if the log ends before it."""
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self._cuts += 1
            self._delete_segments([segment for segment in self._segments if segment.base_offset > offset])
            self._segments.active.truncate_to(offset, self._context.now_ms())
            self.leader_epochs.truncate_from_end(offset)
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.recovery_point = min(self.recovery_point, offset)
            self._rebuild_producers()
        except OSError as e:
            raise self._fail(e) from e
        self.high_watermark = min(self._high_watermark, offset)
        self._context.on_truncated(self, offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and continue with an empty log at an offset."""
        try:
            self._cuts += 1
            old = list(self._segments)
            self._mark_deleted(old)
            self._segments.replace([new_segment(self._context, self.config, self.path, offset)], old)
            self.leader_epochs.clear()
            self.producers.clear(offset)
        except OSError as e:
            raise self._fail(e) from e
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = offset
        self._context.on_truncated(self, offset)

    def _rebuild_producers(self) -> None:
        producers = self.producers
        producers.reload(self.log_start_offset, self.log_end_offset, self._context.now_ms())
        for segment in self._segments.since(producers.end_offset):
            for _, header, batch in segment.batches(segment.near(producers.end_offset)):
                if header.base_offset >= producers.end_offset:
                    producers.replay(header, batch)
        producers.end_offset = self.log_end_offset

    def advance_log_start(self, offset: int) -> bool:
        """Advance the log start (DeleteRecords, retention, the leader's start). Retention deletes the segments."""
        if offset > self._high_watermark:
            raise ApiException(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: start {offset} is above the high watermark {self._high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        try:
            self.leader_epochs.truncate_from_start(offset)
        except OSError as e:
            raise self._fail(e) from e
        self.producers.on_log_start(offset)
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention: delete segments below the log start, and with `delete` those over size or time."""
        try:
            count = self._retire(retention.below_log_start(self))
            if self.config.delete:
                count += self._retire(retention.over_size(self))
                count += self._retire(retention.past_time(self, now_ms))
        except OSError as e:
            raise self._fail(e) from e
        return count

    def _retire(self, segments: list[Segment]) -> int:
        if not segments:
            return 0
        if segments[-1] is self._segments.active:
            self.roll()
        following = self._segments.since(segments[-1].base_offset)[1]
        self.advance_log_start(max(self.log_start_offset, following.base_offset))
        self._delete_segments(segments)
        return len(segments)

    def _delete_segments(self, segments: Sequence[Segment]) -> None:
        if segments:
            self._segments.remove(segments)
            self._mark_deleted(segments)

    def _mark_deleted(self, segments: Sequence[Segment]) -> None:
        """Rename the files to `.deleted`; they are removed later, off the event loop."""
        paths: list[str] = []
        fs = self._context.fs
        for segment in segments:
            segment.change_suffix(DELETED_SUFFIX)
            segment.close_files()
            paths += segment.paths()
            snapshot = self.producers.forget_snapshot(segment.base_offset)
            if snapshot is not None and fs.exists(snapshot):
                fs.rename(snapshot, snapshot + DELETED_SUFFIX)
                paths.append(snapshot + DELETED_SUFFIX)
        self._context.remove(paths, self.config.file_delete_delay_ms)

    # -- cleaning -----------------------------------------------------------------------------------------

    def new_cleaned_segment(self, base_offset: int) -> Segment:
        """Create a segment for the cleaner: its files end in `.cleaned`."""
        return new_segment(self._context, self.config, self.path, base_offset, CLEANED_SUFFIX)

    def swap_in(self, new: Segment, old: Sequence[Segment]) -> list[str]:
        """Replace old segments by a complete one, synced under the suffix `.swap`.

        Returns the files of the old segments. Sync the directory, call `settle`, sync again, then remove the files.
        """
        paths: list[str] = []
        try:
            for segment in old:
                segment.change_suffix(DELETED_SUFFIX)
                segment.close_files()
                paths += segment.paths()
                if segment.base_offset != new.base_offset:
                    snapshot = self.producers.forget_snapshot(segment.base_offset)
                    if snapshot is not None:
                        paths.append(snapshot)
        except OSError as e:
            raise self._fail(e) from e
        self._segments.replace([new], old)
        return paths

    def settle(self, new: Segment) -> None:
        """Give a segment that was swapped in its final name, unless it was deleted meanwhile."""
        if new in self._segments:
            try:
                new.change_suffix("")
            except OSError as e:
                raise self._fail(e) from e

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files of replaced segments after `file.delete.delay.ms`."""
        self._context.remove(paths, self.config.file_delete_delay_ms)

    # -- lifecycle -----------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to` (default: the end) and advance the recovery point. Blocks: use a thread."""
        end = self.log_end_offset if up_to is None else up_to
        cuts = self._cuts
        try:
            try:
                active = self._sync(end)
            except FileNotFoundError:
                active = self._sync(end)  # a segment was deleted meanwhile: sync the rest
        except FileNotFoundError as e:
            raise self._storage_error(e) from e  # the log is being deleted or moved: the disk is fine
        except OSError as e:
            raise self._fail(e) from e
        if active is None or cuts != self._cuts:
            return  # nothing to do, or a truncation removed what was synced
        if active is not self._segments.active:
            # The log rolled meanwhile: the indexes of the former active segment are not on disk yet.
            end = min(end, self._segments.active.base_offset - 1)
        self.recovery_point = max(self.recovery_point, end)
        self.last_flush_ms = self._context.now_ms()

    def _sync(self, end: int) -> Segment | None:
        """Sync the segments with unsynced records below an offset. Returns the active segment, or None."""
        segments = self._segments.all
        active = segments[-1]
        owed = [segment for segment in segments[:-1] if segment.cut or segment.indexes_unsynced]
        if end <= self.recovery_point and not owed and not active.cut:
            return None
        first = self._segments.since(self.recovery_point)[0]
        for segment in segments:
            # Truncations and indexes below are synced too: recovery does not check those segments again.
            if segment in owed or first.base_offset <= segment.base_offset < end or segment.cut:
                segment.fsync(indexes=segment is not active)
        self._sync_names()
        return active

    def _sync_names(self) -> None:
        fs = self._context.fs
        fresh = [segment for segment in self._segments if not segment.entries_synced]
        if fresh:
            fs.fsync_dir(self.path)
            for segment in fresh:
                segment.entries_synced = True
        if not self._synced:
            fs.fsync_dir(self.path.rpartition("/")[0])
            if self.topic_id != ZERO_UUID:
                write_partition_metadata(fs, self.path, self.topic_id, sync=True)
            self._synced = True
        self.leader_epochs.sync()

    def update_config(self, config: TopicConfig) -> None:
        if (
            self.config.ottla_mirror_offsets and not config.ottla_mirror_offsets
        ):  # unsynced gaps would be losses
            self._context.request_flush(self, self.log_end_offset)
        self.config = config
        self.policy = ProducePolicy.of(config)
        self._max_segment_ms = max_segment_ms(config)
        settings = segment_settings(config)
        for segment in self._segments:
            segment.settings = settings
        self._segments.active.jitter_ms = roll_jitter_ms(config, self._context)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id to `partition.metadata`. Raises if the file has another one."""
        if topic_id == self.topic_id or topic_id == ZERO_UUID:
            return
        if self.topic_id != ZERO_UUID:
            raise ApiException(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.path} belongs to another topic of the same name"
            )
        self.topic_id = topic_id
        try:
            write_partition_metadata(self._context.fs, self.path, topic_id)
        except OSError as e:
            raise self._fail(e) from e

    def close(self) -> None:
        """Complete the indexes, write a producer snapshot and close the files. Does not sync."""
        if self.failed is None:
            try:
                self.producers.end_offset = self.log_end_offset
                self.producers.take_snapshot()
                for segment in self._segments:
                    segment.close()
            except OSError as e:
                raise self._fail(e) from e
        self.close_files()

    def close_files(self) -> None:
        """Close the files as they are."""
        for segment in self._segments:
            segment.close_files()

    def close_idle_files(self) -> None:
        """Close the files that were not used since the last call."""
        for segment in self._segments:
            segment.close_idle_files()

    def moved_to(self, path: str) -> None:
        """Update the paths after the directory was renamed."""
        self.path = path
        for segment in self._segments:
            segment.moved_to(path)
        self.leader_epochs.moved_to(path)
        self.producers.moved_to(path)

    def adopt(self, other: PartitionLog) -> None:
        """Continue with the files of a copy that ends where this log ends. Readers can finish with the old files."""
        old = self._segments
        self._context = other._context
        self.path = other.path
        self._segments = other._segments
        self.leader_epochs = other.leader_epochs
        self.producers = other.producers
        self.recovery_point = other.recovery_point
        self._synced = False
        for segment in old:
            segment.close_files()
        self.producers.on_high_watermark(self._high_watermark)

    def _fail(self, error: OSError) -> ApiException:
        """Mark the log as failed and report the I/O error to its directory."""
        if self.failed is None:
            self.failed = error
            self._context.on_io_error(error)
        return self._storage_error(error)
