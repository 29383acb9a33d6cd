"""One partition's log (skeleton of the public surface; the implementation follows)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.log.fs import Buffer, Fs
from ottla.log.types import (
    AbortedTxn,
    AppendInfo,
    AppendOrigin,
    LogSlice,
    TimestampOffset,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.log.leader_epochs import LeaderEpochCache
    from ottla.log.producer_state import ProducerStateManager
    from ottla.log.segment import Segment


class PartitionLog:
    """Mutated on one thread (the event loop, or its owner); `read*`/lookups/`flush` are safe in any thread."""

    topic_partition: TopicPartition
    topic_id: bytes  # 16 bytes, ZERO_UUID where unknown
    config: TopicConfig
    path: str  # the partition's directory
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    last_stable_offset: int
    leader_epochs: (
        LeaderEpochCache  # .latest_epoch, .end_offset_for(epoch, leo) -> (epoch, end_offset), .entries
    )
    producers: ProducerStateManager  # .active -> Mapping[producer_id, ProducerState] for DescribeProducers
    size: int  # bytes of all segments
    segments: Sequence[Segment]  # ascending; the last is active
    high_watermark: int  # settable; clamped to [log_start_offset, log_end_offset]

    def append_as_leader(
        self,
        records: Buffer | Any,  # or the ValidatedBatches of records.validation, already validated/re-encoded
        leader_epoch: int,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        api_version: int = ...,
    ) -> AppendInfo:
        """Validate, assign offsets, append with one writev. Raises KafkaError. The buffer may be dropped afterwards.

        RAFT_LEADER: the batches are taken as they are (control batches allowed), offsets assigned from the end.
        """
        ...

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None) -> AppendInfo:
        """Append batches as the leader sent them: offsets and epochs stand in them already."""
        ...

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int | None = None,
        min_one_batch: bool = True,
        nowait: bool = False,
    ) -> LogSlice:
        """upper_offset None: up to log_end_offset. OFFSET_OUT_OF_RANGE if outside [log_start, upper/log_end]."""
        ...

    def offset_for_timestamp(
        self, timestamp: int, *, upper_offset: int | None = None
    ) -> TimestampOffset | None:
        """First record at or after log_start_offset with timestamp >= it. Reads files: call in a thread when large."""
        ...

    def max_timestamp(self) -> TimestampOffset | None: ...
    def earliest(self) -> TimestampOffset: ...
    def latest(self, upper_offset: int | None = None) -> TimestampOffset: ...
    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]: ...
    def truncate_to(self, offset: int) -> bool: ...
    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None: ...
    def advance_log_start(self, offset: int) -> bool:
        """DeleteRecords / retention: OFFSET_OUT_OF_RANGE beyond the high watermark; segments go with retention."""
        ...

    def assign_epoch_start_offset(self, leader_epoch: int, offset: int) -> None: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) where unknown."""
        ...

    def roll(self) -> Segment: ...
    def flush(self, up_to: int | None = None) -> None:
        """fsync everything below `up_to` (log end) and move the recovery point: blocking, run it in the executor."""
        ...

    def delete_old_segments(self, now_ms: int) -> int:
        """Retention by time, by size and below log_start_offset: number of segments taken out."""
        ...

    def update_config(self, config: TopicConfig) -> None: ...
    def assign_topic_id(self, topic_id: bytes) -> None: ...
    def close(self) -> None:
        """Clean: final index entries, producer snapshot. (The manager flushes before.)"""
        ...

    # for the cleaner
    def new_cleaned_segment(self, base_offset: int) -> Segment: ...
    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None: ...


@dataclass(slots=True)
class LogOptions:
    """What a log needs besides its topic's configuration."""

    producer_id_expiration_ms: int = 86_400_000


def open_log(
    fs: Fs,
    path: str,
    config: TopicConfig,
    *,
    clean: bool,
    now_ms: int,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    topic_id: bytes | None = None,
    options: LogOptions = ...,
) -> PartitionLog:
    """Open (or make) the log in a directory, recovering it unless `clean`. The raft log is opened with this too."""
    ...
