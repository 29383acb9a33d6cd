"""Opening a partition's directory: recovery of unfinished work, torn tails, indexes, producers and epochs.

After a clean shutdown only the last batches are checked. Otherwise, or if one of them is damaged, recovery checks
every batch from the recovery point's segment on, truncates the log at the first bad one, and rebuilds indexes and
producer state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise, zip_longest

import msgspec

from ottla.config.topic import TopicConfig
from ottla.log.checkpoints import read_partition_metadata, write_partition_metadata
from ottla.log.context import LogContext
from ottla.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
    parse_dir_name,
    stem,
)
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log_segments import LogSegments
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStateManager
from ottla.log.rolling import roll_jitter_ms, segment_settings
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.segment_recovery import Place, ends_well, recover_segment
from ottla.log.segment_split import pieces_of, split
from ottla.log.txn_index import CorruptIndexError
from ottla.log.types import TopicPartition
from ottla.records.batch import CorruptBatchError
from ottla.wire.uuid import ZERO_UUID

_logger = logging.getLogger(__name__)

ANYWHERE = 2**63 - 1

# `.checkpoint.deleted` files are snapshots of the metadata log: raft removes those itself.
_FOREIGN_DELETED = ".checkpoint" + DELETED_SUFFIX


class Recovered(msgspec.Struct):
    """What recovery changed, for log lines and tests."""

    truncated_bytes: int = 0
    recovered_segments: int = 0
    deleted_segments: int = 0
    split_segments: int = 0
    removed_files: list[str] = msgspec.field(default_factory=list)


def open_log(
    context: LogContext,
    path: str,
    config: TopicConfig,
    *,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    gaps_below: int | None = None,
    foreign: bool = False,
    topic_id: bytes | None = None,
    report: Recovered | None = None,
) -> PartitionLog:
    """Open or create the log in a directory; recover it unless it was closed cleanly. Raises OSError.

    Compaction may have left gaps below `gaps_below`: by default anywhere in a compacted topic and nowhere in others. A
    mirror leaves those of its source anywhere.
    Another gap in unsynced data means lost records. Of a `foreign` log, whose history is unknown, all whole batches
    are kept.
    """
    if gaps_below is None:
        gaps_below = ANYWHERE if config.compact or foreign else 0
    if config.ottla_mirror_offsets:
        gaps_below = ANYWHERE
    loader = _Loader(
        context, path, config, clean, log_start_offset, recovery_point, gaps_below, foreign, report
    )
    return loader.load(topic_id)


def create_log(context: LogContext, path: str, config: TopicConfig, topic_id: bytes) -> PartitionLog:
    """Create a log in a new directory, with as few system calls as possible."""
    fs = context.fs
    fs.mkdir(path)
    if topic_id != ZERO_UUID:
        write_partition_metadata(fs, path, topic_id)
    segment = Segment.create(
        fs,
        path,
        0,
        segment_settings(config),
        created_ms=context.now_ms(),
        jitter_ms=roll_jitter_ms(config, context),
    )
    tp = _topic_partition(path)
    return PartitionLog(
        context,
        path,
        tp,
        config,
        topic_id=topic_id,
        segments=LogSegments([segment]),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        leader_epochs=LeaderEpochCache(fs, path),
        producers=ProducerStateManager(fs, path, tp, context.producer_id_expiration_ms),
    )


def _topic_partition(path: str) -> TopicPartition:
    name = path.rpartition("/")[2]
    parsed = parse_dir_name(name)
    if parsed is None:
        raise ValueError(f"{path} is not the directory of a partition")
    return parsed[0]


class _Loader:
    """Opens one directory."""

    def __init__(
        self,
        context: LogContext,
        path: str,
        config: TopicConfig,
        clean: bool,
        log_start_offset: int,
        recovery_point: int,
        gaps_below: int,
        foreign: bool,
        report: Recovered | None,
    ) -> None:
        self.context = context
        self.fs = context.fs
        self.path = path
        self.config = config
        self.clean = clean
        self.log_start = log_start_offset
        self.recovery_point = recovery_point
        self.gaps_below = gaps_below
        self.foreign = foreign
        self.report = report if report is not None else Recovered()
        self.settings = segment_settings(config)
        self.now_ms = context.now_ms()

    def load(self, topic_id: bytes | None) -> PartitionLog:
        try:
            names = set(self.fs.listdir(self.path))
        except FileNotFoundError:
            self.fs.mkdir(self.path)
            names = set()
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            names = self._settle_leftovers(names)
        tp = _topic_partition(self.path)
        found = self._find_segments(names)
        if self._split_overflowing(found):
            names = set(self.fs.listdir(self.path))
            found = self._find_segments(names)
        segments = LogSegments(found)
        # Segments below the start were deleted; a crash may bring some of them back.
        self._drop(segments, [s for s, after in pairwise(segments) if after.base_offset <= self.log_start])
        snapshots = [
            offset
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) and (offset := offset_of(name)) is not None
        ]
        producers = self._producers(tp, snapshots)
        epochs = LeaderEpochCache.load(self.fs, self.path, exists=LEADER_EPOCH_FILE in names)
        self._rebuild_damaged_indexes(segments, snapshots, epochs, names)
        end = self._recover(segments, producers, epochs)
        epochs.settle(self.log_start, end)
        log = PartitionLog(
            self.context,
            self.path,
            tp,
            self.config,
            topic_id=read_partition_metadata(self.fs, self.path)
            if PARTITION_METADATA_FILE in names
            else ZERO_UUID,
            segments=segments,
            log_start_offset=max(self.log_start, segments[0].base_offset),
            log_end_offset=end,
            recovery_point=end if self.clean else min(self.recovery_point, end),
            leader_epochs=epochs,
            producers=producers,
        )
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def _producers(self, tp: TopicPartition, snapshots: list[int]) -> ProducerStateManager:
        return ProducerStateManager(self.fs, self.path, tp, self.context.producer_id_expiration_ms, snapshots)

    # -- leftovers ----------------------------------------------------------------------------------------

    def _settle_leftovers(self, names: set[str]) -> set[str]:
        """Finish or undo interrupted deletions, cleanings and swaps of cleaned segments."""
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        first_cleaned = min((_offset(name) for name in cleaned), default=None)
        gone = [n for n in names if n.endswith(DELETED_SUFFIX) and not n.endswith(_FOREIGN_DELETED)]
        gone += cleaned
        # A swap that had not begun everywhere is undone: the old segments still exist.
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        undone = [n for n in swaps if first_cleaned is not None and _offset(n) >= first_cleaned]
        gone += undone
        self._remove(gone, names)
        self._finish_swap([name for name in swaps if name not in undone], names)
        return names

    def _finish_swap(self, swaps: list[str], names: set[str]) -> None:
        logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            low = min(_offset(name) for name in logs)
            high = max(self._swap_end(_offset(name)) for name in logs)
            replaced = [
                name
                for name in names
                if not name.endswith(SWAP_SUFFIX)
                and (offset := offset_of(name)) is not None
                and low <= offset < high
                and name.endswith(SEGMENT_SUFFIXES)
            ]
            self._remove(replaced, names)
        for name in swaps:
            final = name.removesuffix(SWAP_SUFFIX)
            self.fs.rename(f"{self.path}/{name}", f"{self.path}/{final}")
            names.discard(name)
            names.add(final)

    def _swap_end(self, base_offset: int) -> int:
        path = f"{self.path}/{stem(base_offset)}{LOG_SUFFIX}{SWAP_SUFFIX}"
        segment = Segment(
            self.fs, self.path, base_offset, self.settings, size=self.fs.stat(path).size, suffix=SWAP_SUFFIX
        )
        end = segment.next_offset()
        segment.close_files()
        return end

    def _remove(self, gone: list[str], names: set[str]) -> None:
        for name in gone:
            self.fs.remove(f"{self.path}/{name}")
            names.discard(name)
        self.report.removed_files += gone

    # -- segments -----------------------------------------------------------------------------------------

    def _find_segments(self, names: set[str]) -> list[Segment]:
        bases = {_offset(name) for name in names if name.endswith(LOG_SUFFIX) and offset_of(name) is not None}
        orphans = [
            name
            for name in names
            if name.endswith(INDEX_SUFFIXES) and (o := offset_of(name)) is not None and o not in bases
        ]
        if orphans:
            self._remove(orphans, names)
        found = []
        for base_offset in sorted(bases):
            name = stem(base_offset)
            segment = Segment(
                self.fs,
                self.path,
                base_offset,
                self.settings,
                size=self.fs.stat(f"{self.path}/{name}{LOG_SUFFIX}").size,
                created_ms=self.now_ms,
                jitter_ms=roll_jitter_ms(self.config, self.context),
            )
            if name + TXN_INDEX_SUFFIX not in names:
                segment.txn_index.start_empty()
            if name + INDEX_SUFFIX not in names:
                segment.offset_index.start_empty()
            if name + TIME_INDEX_SUFFIX not in names:
                segment.time_index.start_empty()
            found.append(segment)
        return found

    def _split_overflowing(self, segments: Sequence[Segment]) -> bool:
        """Split segments that reach further than an index can. Of unsynced data, recovery cuts what is out of place."""
        found = False
        for segment, following in zip_longest(segments, segments[1:]):
            if following is not None:
                end = following.base_offset
            else:
                end = _end_of(segment) if self.foreign else self.recovery_point
            if end - 1 - segment.base_offset > MAX_RELATIVE_OFFSET:
                pieces = pieces_of(segment)
                if pieces != [(segment.base_offset, 0)]:
                    split(self.fs, self.path, segment, pieces)
                    self.report.split_segments += 1
                    found = True
        return found

    def _rebuild_damaged_indexes(
        self, segments: LogSegments, snapshots: list[int], epochs: LeaderEpochCache, names: set[str]
    ) -> None:
        """Rebuild missing or damaged indexes of segments that the scan does not cover."""
        unflushed = None if self.clean or not len(segments) else segments.since(self.recovery_point)[0]
        for segment in segments:
            if segment is unflushed:
                return
            if not self._index_damaged(segment, names):
                continue
            # The transactions that end in the segment may have begun before it.
            before = self._producers(_topic_partition(self.path), snapshots)
            before.reload(self.log_start, segment.base_offset, self.now_ms, keep_files=True)
            self._replay(segments, before, segment.base_offset)
            self.report.truncated_bytes += recover_segment(segment, before, epochs, active=False)
            self.report.recovered_segments += 1

    def _index_damaged(self, segment: Segment, names: set[str]) -> bool:
        name = stem(segment.base_offset)
        if segment.size and not {name + INDEX_SUFFIX, name + TIME_INDEX_SUFFIX} <= names:
            return True
        if name + TXN_INDEX_SUFFIX in names:
            try:
                segment.txn_index.check()
            except CorruptIndexError:
                return True
        return False

    def _recover(
        self, segments: LogSegments, producers: ProducerStateManager, epochs: LeaderEpochCache
    ) -> int:
        """Recover segments, producers and epochs. Returns the end of the log."""
        producers.remove_strays(segment.base_offset for segment in segments)
        if not len(segments):
            return self._start_empty(segments, producers)
        if self.clean and not ends_well(segments.active):
            _logger.warning(
                "%s is damaged, though it was closed cleanly: it is recovered", segments.active.path
            )
            self.clean, self.recovery_point = False, segments.active.base_offset
        if self.clean:
            end = segments.active.next_offset()
            if end >= self.log_start and producers.snapshot_offsets:
                producers.reload(self.log_start, end, self.now_ms)
                self._replay(segments, producers, end)
            producers.end_offset = end
        else:
            first = segments.since(self.recovery_point)[0].base_offset
            producers.reload(self.log_start, first, self.now_ms, keep_files=True)
            self._replay(segments, producers, first)
            end = self._scan(segments, producers, epochs, first)
            producers.drop_snapshots_after(end)
        if end < self.log_start:
            # The log ends before its start offset: all of it was deleted before.
            self._drop(segments, list(segments))
            epochs.clear()
            return self._start_empty(segments, producers)
        return end

    def _start_empty(self, segments: LogSegments, producers: ProducerStateManager) -> int:
        producers.clear(self.log_start)
        segments.add(
            Segment.create(
                self.fs,
                self.path,
                self.log_start,
                self.settings,
                created_ms=self.now_ms,
                jitter_ms=roll_jitter_ms(self.config, self.context),
            )
        )
        return self.log_start

    def _replay(self, segments: LogSegments, producers: ProducerStateManager, end: int) -> None:
        """Replay the log into the producers from their snapshot up to an offset."""
        start = producers.end_offset
        if start >= end:
            return
        for segment in segments.since(start):
            if segment.base_offset >= end:
                break
            for _, header, batch in segment.batches(segment.near(start)):
                if header.base_offset >= end:
                    break
                if header.base_offset >= start:
                    producers.replay(header, batch)
        producers.end_offset = end

    def _scan(
        self, segments: LogSegments, producers: ProducerStateManager, epochs: LeaderEpochCache, first: int
    ) -> int:
        """Check every batch from a segment on, and truncate at the first damage. Returns the end of the log."""
        pending = segments.since(first)
        place = Place(
            first,
            synced=ANYWHERE if self.foreign else self.recovery_point,
            gaps_below=self.gaps_below,
            written_epochs=epochs.entries,
            epochs_lost=not epochs.had_file,
        )
        end = first
        for n, segment in enumerate(pending):
            following = pending[n + 1] if n + 1 < len(pending) else None
            if n and (
                segment.base_offset < end
                or segment.base_offset > max(end, self.log_start) >= max(self.recovery_point, self.gaps_below)
            ):
                # Either the previous segment lost its end, or this one was deleted before the crash and
                # came back with it: the following segments do not belong to the log.
                self._drop(segments, pending[n:])
                break
            damaged = recover_segment(
                segment, producers, epochs, place, following=following, active=following is None
            )
            self.report.recovered_segments += 1
            end = max(producers.end_offset, segment.base_offset)
            if damaged:
                self.report.truncated_bytes += damaged
                self._drop(segments, pending[n + 1 :])
                break
        producers.end_offset = end
        return end

    def _drop(self, segments: LogSegments, gone: Sequence[Segment]) -> None:
        for segment in gone:
            segment.close_files()
            for path in segment.paths():
                self.fs.remove(path)
        if gone:
            segments.remove(gone)
            self.fs.fsync_dir(self.path)
        self.report.deleted_segments += len(gone)


def _offset(name: str) -> int:
    offset = offset_of(name)
    if offset is None:
        raise ValueError(f"{name} does not begin with an offset")
    return offset


def _end_of(segment: Segment) -> int:
    """The offset after a segment's last batch; its base offset if it ends in a batch that recovery has to cut."""
    try:
        return segment.next_offset()
    except CorruptBatchError:
        return segment.base_offset
