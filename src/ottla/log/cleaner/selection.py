"""Selects the dirtiest compacted log and the part of it that may be cleaned now. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.log.segment import Segment
from ottla.log.types import TopicPartition

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with the offsets of its dirty part."""

    log: PartitionLog
    first_dirty_offset: int
    upper_bound: int
    """The base offset of the first segment that must not be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """A record has waited for longer than `max.compaction.lag.ms`."""

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def worthwhile(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.overdue or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True)
class Selection:
    """The dirtiest log worth cleaning, if any, and corrections of impossible checkpoints."""

    target: LogToClean | None
    corrected: Mapping[TopicPartition, int]


def select(logs: Iterable[PartitionLog], checkpoints: Mapping[TopicPartition, int], now_ms: int) -> Selection:
    """Select among compacted logs that are not being cleaned."""
    best: LogToClean | None = None
    corrected: dict[TopicPartition, int] = {}
    for log in logs:
        tp = log.topic_partition
        known = checkpoints.get(tp)
        first_dirty = first_dirty_offset(log, known)
        if known is not None and first_dirty != known:
            corrected[tp] = first_dirty
        found = judge(log, first_dirty, now_ms)
        if found.worthwhile and (best is None or found.cleanable_ratio > best.cleanable_ratio):
            best = found
    return Selection(best, corrected)


def first_dirty_offset(log: PartitionLog, checkpoint: int | None) -> int:
    """Return the end of the last cleaning; the log start if that is unknown or outside the log."""
    start = log.log_start_offset
    if checkpoint is None or not start <= checkpoint <= log.log_end_offset:
        return start
    return checkpoint


def judge(log: PartitionLog, first_dirty: int, now_ms: int) -> LogToClean:
    """How much of a log is dirty, and up to where it may be cleaned: never the active segment, nothing that is
    not stable, and nothing younger than `min.compaction.lag.ms`.
    """
    segments = log.segments
    closed = segments[:-1]
    upper = min(log.last_stable_offset, segments[-1].base_offset)
    if log.config.min_compaction_lag_ms > 0:
        upper = min(
            upper, _first_young(closed, first_dirty, now_ms - log.config.min_compaction_lag_ms, upper)
        )
    upper = _segment_start(segments, max(upper, first_dirty))
    return LogToClean(
        log=log,
        first_dirty_offset=first_dirty,
        upper_bound=upper,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in _holding(segments, first_dirty, upper)),
        overdue=_is_overdue(log, _holding(closed, first_dirty, segments[-1].base_offset), now_ms),
    )


def _holding(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Return the segments that may hold an offset of [start, end)."""
    chosen: list[Segment] = []
    for segment in segments:
        if segment.base_offset >= end:
            break
        if segment.base_offset <= start:
            chosen = []
        chosen.append(segment)
    return chosen if start < end else []


def _segment_start(segments: Sequence[Segment], offset: int) -> int:
    """Return the base offset of the segment that holds an offset."""
    return max((s.base_offset for s in segments if s.base_offset <= offset), default=segments[0].base_offset)


def _first_young(segments: Sequence[Segment], first_dirty: int, before_ms: int, otherwise: int) -> int:
    for segment in _holding(segments, first_dirty, otherwise):
        if segment.largest_timestamp() > before_ms:
            return segment.base_offset
    return otherwise


def _is_overdue(log: PartitionLog, dirty: Iterable[Segment], now_ms: int) -> bool:
    before_ms = now_ms - log.config.max_compaction_lag_ms
    if before_ms <= 0:
        return False
    return any(0 < _first_timestamp(segment) < before_ms for segment in dirty)


def _first_timestamp(segment: Segment) -> int:
    if segment.first_timestamp is not None:
        return segment.first_timestamp
    header = segment.header_at(0) if segment.size else None
    return -1 if header is None else header.max_timestamp
