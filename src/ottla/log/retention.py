"""Retention: the segments below the log start, over `retention.bytes` or past `retention.ms`. Deletes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.segment import Segment

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

_Rule = Callable[[Segment, Segment | None], bool]


def _oldest_while(log: PartitionLog, rule: _Rule) -> list[Segment]:
    """Return the oldest segments for which the rule holds, all below the high watermark."""
    chosen: list[Segment] = []
    segments = log.segments
    for n, segment in enumerate(segments):
        following = segments[n + 1] if n + 1 < len(segments) else None
        upper = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < upper or not rule(segment, following):
            break
        if following is None and not segment.size:
            break
        chosen.append(segment)
    return chosen


def below_log_start(log: PartitionLog) -> list[Segment]:
    start = log.log_start_offset
    return _oldest_while(log, lambda _, following: following is not None and following.base_offset <= start)


def over_size(log: PartitionLog) -> list[Segment]:
    limit = log.config.retention_bytes
    excess = log.size - limit
    if limit < 0 or excess < 0:
        return []

    def still_over(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return _oldest_while(log, still_over)


def past_time(log: PartitionLog, now_ms: int) -> list[Segment]:
    limit = log.config.retention_ms
    if limit < 0:
        return []
    return _oldest_while(log, lambda segment, _: now_ms - segment.largest_timestamp() > limit)
