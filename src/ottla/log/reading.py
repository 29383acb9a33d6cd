"""Finding things in segments: slices by offset, offsets by timestamp, aborted transactions. Safe in any thread."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.types import NO_TIMESTAMP, AbortedTxn, LogSlice, TimestampOffset
from ottla.records.batch import BatchHeader, iter_records

EMPTY = memoryview(b"")


def read_slice(
    segments: Segments, offset: int, limit: int, max_bytes: int, min_one_batch: bool, nowait: bool
) -> LogSlice:
    """Batches from the one that holds `offset` on, below `limit`, of one segment and at most `max_bytes`."""
    candidates = segments.since(offset)
    for n, segment in enumerate(candidates):
        found = segment.find(offset, nowait=nowait)
        if found is None:
            continue  # compaction took the end of this segment
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
    return LogSlice(EMPTY, offset, offset)


def _end_position(segment: Segment, limit: int, following: int | None, nowait: bool) -> int:
    """Where the batches below `limit` end in a segment."""
    size = segment.size
    if following is not None and limit >= following:
        return size
    found = segment.find(limit, nowait=nowait)
    return size if found is None else min(found[0], size)


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """The first record at or after `start_offset` whose timestamp is at least the one given."""
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


def max_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The record with the largest timestamp, the first of them."""
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


def aborted_transactions(segments: Segments, start: int, end: int) -> list[AbortedTxn]:
    """The aborted transactions with records in [start, end)."""
    found: list[AbortedTxn] = []
    for segment in segments.since(start):
        txns, complete = segment.txn_index.collect(start, end)
        found += txns
        if complete:
            break
    return found
