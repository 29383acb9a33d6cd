"""The reading side of a partition's log: bounds, slices, lookups by time and epoch. Safe in any thread."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import ApiException, ErrorCode
from ottla.log import reading
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.types import NO_EPOCH, NO_TIMESTAMP, AbortedTxn, LogSlice, TimestampOffset, TopicPartition


class LogReader:
    """What a log has to be read; `PartitionLog` adds all that changes it."""

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
    """What made the log (or its directory) unusable."""
    _segments: Segments

    @property
    def segments(self) -> Sequence[Segment]:
        """Ascending; the last is the active one. Not to be changed."""
        return self._segments.all

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

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
        """Batches from the one that holds `offset`, of one segment, below `upper_offset` (the log's end if None).

        May end amid a batch. Raises OFFSET_OUT_OF_RANGE, and `WouldBlock` with `nowait`.
        """
        if self.failed is not None:
            raise self._storage_error(self.failed)
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        limit = end if upper_offset is None else min(upper_offset, end)
        if offset >= limit:
            return LogSlice(reading.EMPTY, offset, offset)
        try:
            return reading.read_slice(self._segments, offset, limit, max_bytes, min_one_batch, nowait)
        except FileNotFoundError:
            # The segment was deleted or replaced between finding and reading it: look again.
            if offset < self.log_start_offset:
                raise self._out_of_range(offset) from None
            return reading.read_slice(self._segments, offset, limit, max_bytes, min_one_batch, nowait)
        except OSError as e:
            raise self._storage_error(e) from e

    def _out_of_range(self, offset: int) -> ApiException:
        return ApiException(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record from the log's start on with this timestamp or a later one. Reads files: use a thread."""
        return reading.offset_for_timestamp(self.segments, timestamp, self.log_start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp. Reads files: use a thread."""
        return reading.max_timestamp(self.segments)

    def earliest(self) -> TimestampOffset:
        """The log's start, with its epoch."""
        first = self.leader_epochs.earliest
        known = first is not None and first.start_offset <= self.log_start_offset
        return TimestampOffset(
            NO_TIMESTAMP, self.log_start_offset, first.epoch if first is not None and known else NO_EPOCH
        )

    def latest(self, upper_offset: int | None = None) -> TimestampOffset:
        """The end (or the given bound), with the newest epoch."""
        offset = self.log_end_offset if upper_offset is None else upper_offset
        return TimestampOffset(NO_TIMESTAMP, offset, self.leader_epochs.latest_epoch)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [start, end)."""
        return reading.aborted_transactions(self._segments, start, end)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) where unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def _storage_error(self, error: OSError) -> ApiException:
        return ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} in {self.path}: {error}")
