"""The steps of one cleaning, each in a thread: collect the last offset of each key, group the segments, and write the
survivors of a group into a new segment. `log_cleaner` swaps the new segment in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.limits import MAX_UNPACKED_BATCH_BYTES
from ottla.log.cleaner.batch_filter import BatchFilter, FilterStats, LastRecord, control_type
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.selection import LogToClean
from ottla.log.cleaner.throttler import Throttler
from ottla.log.cleaner.transactions import CleanedTransactionMetadata
from ottla.log.files import SWAP_SUFFIX
from ottla.log.fs import Buffer, Fs
from ottla.log.segment import MAX_RELATIVE_OFFSET, AppendedBatch, Segment
from ottla.log.types import AbortedTxn
from ottla.records.batch import BatchHeader, CorruptBatchError, check_crc, read_header, record_bytes
from ottla.records.record import iter_raw

_WRITE_BYTES = 1 << 20
_WRITE_BUFFERS = 512
"""The most buffers of one write: systems limit them to 1024."""
_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12


@dataclass(slots=True)
class Plan:
    """The result of the first step: the keys, and the groups of segments that become one segment each."""

    target: LogToClean
    offset_map: OffsetMap
    groups: list[list[Segment]]
    sizes: dict[Segment, int]
    """The size of each segment at this time: a segment that changed later must not be replaced."""
    txns: CleanedTransactionMetadata

    @property
    def end_offset(self) -> int:
        """The end of the clean part after the cleaning."""
        return self.offset_map.latest_offset + 1


@dataclass(slots=True)
class CleanedGroup:
    """A new segment with the suffix `.swap`, complete and synced, and the segments that it replaces."""

    segment: Segment
    replaces: list[Segment]
    stats: FilterStats


def make_plan(target: LogToClean, offset_map: OffsetMap, throttler: Throttler) -> Plan:
    """Read the dirty part into the map, and group the segments below its end."""
    log = target.log
    segments = [s for s in log.segments[:-1] if s.base_offset < target.upper_bound]
    start = segments[0].base_offset if segments else target.first_dirty_offset
    aborted = log.aborted_transactions(start, target.upper_bound)
    fill_map(segments, target.first_dirty_offset, target.upper_bound, aborted, offset_map, throttler)
    involved = [s for s in segments if s.base_offset <= offset_map.latest_offset]
    groups = group_segments(
        involved, log.config.segment_bytes, log.config.segment_index_bytes, target.upper_bound
    )
    sizes = {segment: segment.size for segment in involved}
    return Plan(target, offset_map, groups, sizes, CleanedTransactionMetadata(aborted))


def fill_map(
    segments: Sequence[Segment],
    start: int,
    end: int,
    aborted: Iterable[AbortedTxn],
    offset_map: OffsetMap,
    throttler: Throttler,
) -> None:
    """Put the last offset of every key in [start, end) into the map until it is full: at least one batch."""
    txns = CleanedTransactionMetadata(aborted)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= start:
            continue
        position = segment.offset_index.lookup(start) if segment.base_offset < start else 0
        for _, header, batch in segment.batches(position):
            if offset_map.full:
                return
            _note_batch(header, batch, start, txns, offset_map)
            if header.last_offset >= start:
                offset_map.read_up_to(header.last_offset)
            throttler(len(batch))
        offset_map.read_up_to(following - 1)


def _note_batch(
    header: BatchHeader, batch: Buffer, start: int, txns: CleanedTransactionMetadata, offset_map: OffsetMap
) -> None:
    if not check_crc(batch, 0, header):
        raise CorruptBatchError(f"batch at offset {header.base_offset} does not match its checksum")
    if not header.is_control and txns.is_aborted(header):
        return
    data = record_bytes(batch, 0, header, MAX_UNPACKED_BATCH_BYTES) if header.count else b""
    if header.is_control:
        txns.is_marker_done(header, control_type(data, header.count))
        return
    base_offset = header.base_offset
    for _, offset_delta, key, _, _, _, _ in iter_raw(data, header.count):
        if key is not None and base_offset + offset_delta >= start:
            offset_map.put(key, base_offset + offset_delta)


def group_segments(
    segments: Sequence[Segment], max_bytes: int, max_index_bytes: int, end: int
) -> list[list[Segment]]:
    """Group neighbours that fit into one segment by size, indexes and offsets."""
    groups: list[list[Segment]] = []
    size = offsets = times = 0
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        offset_bytes = len(segment.offset_index) * _OFFSET_ENTRY_BYTES
        time_bytes = len(segment.time_index) * _TIME_ENTRY_BYTES
        fits = (
            bool(groups)
            and size + segment.size <= max_bytes
            and offsets + offset_bytes <= max_index_bytes
            and times + time_bytes <= max_index_bytes
            and (not segment.size or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = offsets = times = 0
        size += segment.size
        offsets += offset_bytes
        times += time_bytes
    return groups


def clean_group(
    fs: Fs,
    plan: Plan,
    group: list[Segment],
    producers: Mapping[int, LastRecord],
    now_ms: int,
    throttler: Throttler,
) -> CleanedGroup:
    """Write the survivors of a group into a new segment, synced and ready to swap in."""
    log = plan.target.log
    cleaned = log.new_cleaned_segment(group[0].base_offset)
    try:
        plan.txns.set_on_kept_abort(cleaned.txn_index.append)
        batch_filter = BatchFilter(
            plan.offset_map,
            plan.txns,
            producers,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            upper_bound=plan.target.upper_bound,
        )
        for segment in group:
            _clean_into(segment, cleaned, batch_filter, throttler)
        cleaned.become_inactive()
        cleaned.fsync(indexes=True)
        # From here on recovery would finish the swap: the names must be on disk before the old segments are removed.
        cleaned.change_suffix(SWAP_SUFFIX)
        fs.fsync_dir(log.path)
    except BaseException:
        discard(fs, cleaned)
        raise
    return CleanedGroup(cleaned, group, batch_filter.stats)


def _clean_into(source: Segment, cleaned: Segment, batch_filter: BatchFilter, throttler: Throttler) -> None:
    buffers: list[Buffer] = []
    appended: list[AppendedBatch] = []
    waiting = 0
    end = 0
    for position, header, batch in source.batches():
        end = position + len(batch)
        kept = batch_filter.apply(header, batch)
        if kept is not None:
            new = header if kept is batch else read_header(kept)
            buffers.append(kept)
            appended.append((len(kept), new.last_offset, new.max_timestamp))
            waiting += len(kept)
            if waiting >= _WRITE_BYTES or len(buffers) >= _WRITE_BUFFERS:
                cleaned.append(buffers, appended)
                buffers, appended, waiting = [], [], 0
        throttler(len(batch))
    if buffers:
        cleaned.append(buffers, appended)
    if end != source.size:
        # Unreadable data must not be dropped: an operator may still rescue it.
        raise CorruptBatchError(f"{source} has no whole batch at position {end}")


def discard(fs: Fs, cleaned: Segment) -> None:
    """Remove a new segment that will not be swapped in."""
    cleaned.close_files()
    for path in cleaned.paths():
        fs.remove(path)
