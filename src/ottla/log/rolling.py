"""The topic settings for segments: index density and when to roll."""

from __future__ import annotations

from ottla.config.topic import TopicConfig
from ottla.log.context import LogContext
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment, SegmentSettings


def segment_settings(config: TopicConfig) -> SegmentSettings:
    return SegmentSettings(config.index_interval_bytes, config.segment_index_bytes, config.segment_bytes)


def is_full(segment: Segment, config: TopicConfig, size: int, last_offset: int) -> bool:
    """Return whether a batch of `size` bytes that ends with `last_offset` needs a new segment."""
    return (
        segment.size > config.segment_bytes - size
        or segment.indexes_full
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    )


def max_segment_ms(config: TopicConfig) -> int:
    """Return how long a segment may stay active. The cleaner skips the active one, so its maximum lag counts, too."""
    if config.compact and config.max_compaction_lag_ms > 0:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


def roll_jitter_ms(config: TopicConfig, context: LogContext) -> int:
    """Return a random part of `segment.jitter.ms`, so that segments created together do not roll together."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    return context.random.randrange(span) if span > 0 else 0


def new_segment(
    context: LogContext, config: TopicConfig, path: str, base_offset: int, suffix: str = ""
) -> Segment:
    """Create the segment of a log that begins at an offset."""
    return Segment.create(
        context.fs,
        path,
        base_offset,
        segment_settings(config),
        created_ms=context.now_ms(),
        jitter_ms=roll_jitter_ms(config, context),
        suffix=suffix,
    )
