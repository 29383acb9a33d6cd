"""The read side of a partition's log: bounds, slices by offset, lookups by timestamp and leader epoch.

Every method is safe in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log_segments import LogSegments
from ottla.log.segment import Segment
from ottla.log.types import NO_EPOCH, NO_TIMESTAMP, AbortedTxn, LogSlice, TimestampOffset, TopicPartition
from ottla.records.batch import BatchHeader, iter_records

_EMPTY: Final = memoryview(b"")


class LogReader:
    """The state that reads need, and the reads. `PartitionLog` adds everything that changes a log."""

    __slots__ = (
        "_segments",
        "failed",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "path",
        "topic_partition",
    )

    topic_partition: TopicPartition
    path: str
    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochCache
    failed: OSError | None
    """The error that made the log or its directory unusable."""
    _segments: LogSegments

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in ascending order; the last one is active. Callers must not change the list."""
        return self._segments.all

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int | None = None,
        min_one_batch: bool = True,
        nowait: bool = False,
    ) -> LogSlice:
        """Read batches of one segment, from the one that holds `offset` up to `upper_offset` (default: the log's end).

        The slice may end inside a batch. Raises OFFSET_OUT_OF_RANGE, and `WouldBlock` with `nowait`.
        """
        if self.failed is not None:
            raise self._storage_error(self.failed)
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        limit = end if upper_offset is None else min(upper_offset, end)
        if offset >= limit:
            return LogSlice(_EMPTY, offset, offset)
        try:
            return _read_slice(self._segments, offset, limit, max_bytes, min_one_batch, nowait)
        except FileNotFoundError:
            # The segment was deleted or replaced between the lookup and the read: try again.
            if offset < self.log_start_offset:
                raise self._out_of_range(offset) from None
            return _read_slice(self._segments, offset, limit, max_bytes, min_one_batch, nowait)
        except OSError as e:
            raise self._storage_error(e) from e

    def _out_of_range(self, offset: int) -> ApiException:
        return ApiException(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Find the first record with this timestamp or a later one. Reads files: call it in a thread."""
        return _offset_for_timestamp(self.segments, timestamp, self.log_start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """Find the record with the largest timestamp. Reads files: call it in a thread."""
        return _max_timestamp(self.segments)

    def earliest(self) -> TimestampOffset:
        """Return the log start offset with its leader epoch."""
        first = self.leader_epochs.earliest
        known = first is not None and first.start_offset <= self.log_start_offset
        return TimestampOffset(
            NO_TIMESTAMP, self.log_start_offset, first.epoch if first is not None and known else NO_EPOCH
        )

    def latest(self, upper_offset: int | None = None) -> TimestampOffset:
        """Return the log end offset, or the given bound, with the latest leader epoch."""
        offset = self.log_end_offset if upper_offset is None else upper_offset
        return TimestampOffset(NO_TIMESTAMP, offset, self.leader_epochs.latest_epoch)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """List the aborted transactions with records in [start, end)."""
        return _aborted_transactions(self._segments, start, end)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) as OffsetForLeaderEpoch does, or (-1, -1) for an unknown epoch."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def _storage_error(self, error: OSError) -> ApiException:
        return ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} in {self.path}: {error}")


def _read_slice(
    segments: LogSegments, offset: int, limit: int, max_bytes: int, min_one_batch: bool, nowait: bool
) -> LogSlice:
    """Read at most `max_bytes` of one segment, from the batch that holds `offset` up to `limit`."""
    candidates = segments.since(offset)
    for n, segment in enumerate(candidates):
        found = segment.find(offset, nowait=nowait)
        if found is None:
            continue  # compaction removed the end of this segment
        position, first_size = found
        following = candidates[n + 1].base_offset if n + 1 < len(candidates) else None
        end = _end_position(segment, limit, following, nowait)
        if end <= position:
            break
        bound = limit if following is None else min(limit, following)
        size = max_bytes
        if size < first_size:
            if not min_one_batch:
                if size <= 0:
                    break
                size = min(size, end - position)
                return LogSlice(segment.log.pread(size, position, nowait=nowait), offset, bound, False)
            size = first_size
        size = min(size, end - position)
        return LogSlice(segment.log.pread(size, position, nowait=nowait), offset, bound)
    return LogSlice(_EMPTY, offset, offset)


def _end_position(segment: Segment, limit: int, following: int | None, nowait: bool) -> int:
    """Return the position in a segment at which the batches below `limit` end."""
    size = segment.size
    if following is not None and limit >= following:
        return size
    found = segment.find(limit, nowait=nowait)
    return size if found is None else min(found[0], size)


def _offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Find the first record at or after `start_offset` with this timestamp or a later one."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        floor = max(segment.time_index.lookup(timestamp), start_offset)
        for _, header, batch in segment.batches(segment.near(floor)):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in iter_records(batch, 0, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _max_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """Find the first record with the largest timestamp."""
    best: Segment | None = None
    for segment in segments:
        if best is None or segment.max_timestamp > best.max_timestamp:
            best = segment
    if best is None or best.max_timestamp == NO_TIMESTAMP:
        return None
    timestamp, last_offset = best.max_timestamp_and_offset()
    for _, header, batch in best.batches(best.near(last_offset)):
        if header.max_timestamp == timestamp:
            return TimestampOffset(
                timestamp, _offset_of(batch, header, timestamp), header.partition_leader_epoch
            )
    return None


def _offset_of(batch: memoryview, header: BatchHeader, timestamp: int) -> int:
    for record in iter_records(batch, 0, header):
        if record.timestamp == timestamp:
            return record.offset
    return header.last_offset


def _aborted_transactions(segments: LogSegments, start: int, end: int) -> list[AbortedTxn]:
    """List the aborted transactions with records in [start, end)."""
    found: list[AbortedTxn] = []
    for segment in segments.since(start):
        txns, complete = segment.txn_index.collect(start, end)
        found += txns
        if complete:
            break
    return found
