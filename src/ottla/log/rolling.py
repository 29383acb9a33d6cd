"""What a topic's configuration says about its segments: how dense their indexes are and when they end."""

from __future__ import annotations

from ottla.config.topic import TopicConfig
from ottla.log.context import LogContext
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment, SegmentSettings


def segment_settings(config: TopicConfig) -> SegmentSettings:
    return SegmentSettings(config.index_interval_bytes, config.segment_index_bytes, config.segment_bytes)


def is_full(segment: Segment, config: TopicConfig, size: int, last_offset: int) -> bool:
    """Whether a batch of `size` bytes that ends with `last_offset` needs another segment."""
    return (
        segment.size > config.segment_bytes - size
        or segment.indexes_full
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    )


def max_segment_ms(config: TopicConfig) -> int:
    """How long a segment may stay the active one: the cleaner can only keep to its maximum lag if segments end."""
    if config.compact and config.max_compaction_lag_ms > 0:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


def roll_jitter_ms(config: TopicConfig, context: LogContext) -> int:
    """A random part of `segment.jitter.ms`, so that segments begun together do not all end together."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    return context.random.randrange(span) if span > 0 else 0
