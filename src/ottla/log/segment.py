"""One segment: a `.log` file of batches and its three indexes, with Kafka's rules for index entries and rolling.

Knows positions and batch headers; offsets to assign, producers and epochs are the partition log's. Files open at
first use. Appending, truncating and renaming happen on the owner's thread; lookups and reads in any.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ottla.log.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, stem
from ottla.log.fs import Buffer, File, Fs
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.preallocation import FIRST_LOOK_BYTES
from ottla.log.txn_index import TransactionIndex
from ottla.log.types import NO_TIMESTAMP, AbortedTxn
from ottla.records.batch import HEADER_SIZE, MAGIC, MIN_LENGTH, BatchHeader, CorruptBatchError, read_header

MAX_RELATIVE_OFFSET = 0x7FFFFFFF

_TAIL_BATCHES = 128
"""The number of last batches whose positions stay in memory, so that readers at the end need no index."""

_SCAN_BYTES = 4096
_READ_AHEAD = 1 << 20
_LOCATOR = struct.Struct(">qiibIhi")
"""The header up to the last offset delta: enough to find a batch."""


class BatchPosition(NamedTuple):
    """The position of a batch in its segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


AppendedBatch = tuple[int, int, int]
"""Size, last offset and largest timestamp of a batch that is being appended."""


class _Tail(NamedTuple):
    """The last batches of the active segment. The lists only grow, positions first; other changes set a new tail."""

    floor: int
    """The tail covers offsets from here on."""
    positions: list[int]
    last_offsets: list[int]


class SegmentSettings(NamedTuple):
    """The topic settings that a segment needs."""

    index_interval_bytes: int
    max_index_bytes: int
    max_bytes: int
    """The largest size of a segment's log file."""


class Scan(msgspec.Struct):
    """The result of a recovery scan: everything that can be rebuilt from the batches."""

    size: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max: int = 0
    first_timestamp: int | None = None
    bytes_since_entry: int = 0
    offset_entries: bytearray = msgspec.field(default_factory=bytearray)
    time_entries: bytearray = msgspec.field(default_factory=bytearray)
    aborted: list[AbortedTxn] = msgspec.field(default_factory=list)
    tail: list[BatchPosition] = msgspec.field(default_factory=list)
    """The last batches, more than the tail keeps."""


class Segment:
    """Batches from `base_offset` on. `size` is the length of the log file."""

    __slots__ = (
        "_bytes_since_entry",
        "_dir",
        "_fs",
        "_indexes_full",
        "_log",
        "_look_at",
        "_max",
        "_suffix",
        "_tail",
        "base_offset",
        "created_ms",
        "cut",
        "entries_synced",
        "first_timestamp",
        "indexes_unsynced",
        "jitter_ms",
        "offset_index",
        "settings",
        "size",
        "time_index",
        "txn_index",
        "used",
    )

    def __init__(
        self,
        fs: Fs,
        directory: str,
        base_offset: int,
        settings: SegmentSettings,
        *,
        size: int = 0,
        created_ms: int = 0,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        path = f"{directory}/{stem(base_offset)}"
        self._fs = fs
        self._dir = directory
        self._suffix = suffix
        self._log: File | None = None
        self.base_offset = base_offset
        self.settings = settings
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.first_timestamp: int | None = None
        """The maximum timestamp of the first batch: the start for rolling by time."""
        self._max: tuple[int, int] | None = None
        self._bytes_since_entry = 0
        self._indexes_full: bool | None = None
        """None: not computed since an entry was added."""
        self._tail: _Tail | None = None
        self.indexes_unsynced = False
        """The indexes are complete, but perhaps not on disk."""
        self.cut = False
        """The log file was truncated, perhaps without a sync."""
        self._look_at = FIRST_LOOK_BYTES
        """At this size the log file may need more preallocated space."""
        self.used = False
        """The log file was used since the last check for idle files."""
        self.entries_synced = False
        """The directory entries of the files are known to be on disk."""
        self.offset_index = OffsetIndex(
            fs, path + INDEX_SUFFIX + suffix, base_offset, settings.max_index_bytes
        )
        self.time_index = TimeIndex(
            fs, path + TIME_INDEX_SUFFIX + suffix, base_offset, settings.max_index_bytes
        )
        self.txn_index = TransactionIndex(fs, path + TXN_INDEX_SUFFIX + suffix, base_offset)

    @classmethod
    def create(
        cls,
        fs: Fs,
        directory: str,
        base_offset: int,
        settings: SegmentSettings,
        *,
        created_ms: int = 0,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """A new, empty segment; files of the same name are emptied."""
        self = cls(
            fs, directory, base_offset, settings, created_ms=created_ms, jitter_ms=jitter_ms, suffix=suffix
        )
        self._log = fs.open(self.path, create=True, truncate=True)
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.txn_index.start_empty()
        self._max = (NO_TIMESTAMP, base_offset)
        self._tail = _Tail(base_offset, [], [])
        return self

    @property
    def path(self) -> str:
        return f"{self._dir}/{stem(self.base_offset)}{LOG_SUFFIX}{self._suffix}"

    @property
    def log(self) -> File:
        """The log file, opened at first use."""
        self.used = True
        log = self._log
        if log is None:
            self._log = log = self._fs.open(self.path)
        return log

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    # -- time ---------------------------------------------------------------------------------------------

    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """Return the largest timestamp with the last offset of its batch, or (-1, base offset)."""
        found = self._max
        if found is None:
            self._max = found = self.time_index.last_entry()
        return found

    @property
    def max_timestamp(self) -> int:
        return self.max_timestamp_and_offset()[0]

    def largest_timestamp(self) -> int:
        """Return the timestamp for retention: the largest in the records, or the file's modification time."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._fs.stat(self.path).mtime_ms

    def waited_for_roll_ms(self, now_ms: int, max_timestamp: int) -> int:
        """Return how long the segment has been active, in the time of its records if they have one."""
        first = self.first_timestamp
        if first is None and self.size:
            header = self.header_at(0)
            self.first_timestamp = first = header.max_timestamp if header is not None else None
        if first is not None and first >= 0:
            return max_timestamp - first
        return now_ms - self.created_ms

    # -- appending ----------------------------------------------------------------------------------------

    @property
    def indexes_full(self) -> bool:
        """Whether an index is full. Cached: every append asks, and few change it."""
        full = self._indexes_full
        if full is None:
            self._indexes_full = full = self.offset_index.is_full or self.time_index.is_full
        return full

    def append(self, buffers: Sequence[Buffer], batches: Sequence[AppendedBatch]) -> None:
        """Append batches with one write."""
        start = position = self.size
        tail = self._tail
        if tail is None:
            tail = self._tail = _Tail(self.next_offset(), [], [])
        top = self._max or self.max_timestamp_and_offset()
        self.size = start + self.log.append(buffers)
        since = self._bytes_since_entry
        interval = self.settings.index_interval_bytes
        for size, last_offset, timestamp in batches:
            if timestamp > top[0]:
                self._max = top = (timestamp, last_offset)
            if since > interval:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(top[0], top[1])
                self._indexes_full = None
                since = 0
            since += size
            tail.positions.append(position)
            tail.last_offsets.append(last_offset)
            position += size
        self._bytes_since_entry = since
        if not start:
            self.first_timestamp = batches[0][2]
        if position >= self._look_at:
            beside = (self.offset_index.path, self.time_index.path)
            self._look_at = self.log.preallocate(position, self.settings.max_bytes, beside)
        if len(tail.positions) > _TAIL_BATCHES:
            drop = len(tail.positions) - _TAIL_BATCHES // 2
            self._tail = _Tail(
                tail.last_offsets[drop - 1] + 1, tail.positions[drop:], tail.last_offsets[drop:]
            )

    def rebuilt(self, scan: Scan, *, active: bool) -> None:
        """Apply the result of a scan: valid length, index entries, aborted transactions."""
        if scan.size != self.size:
            self.log.truncate(scan.size)
            self.size = scan.size
            # Sync at once: after a kill here the next process would find no damage and not know of the truncation.
            self.log.fsync()
        self.offset_index.replace(bytes(scan.offset_entries))
        self.time_index.replace(bytes(scan.time_entries))
        self._indexes_full = None
        self.txn_index.replace_if_changed(scan.aborted)
        self._max = (scan.max_timestamp, scan.offset_of_max)
        self.first_timestamp = scan.first_timestamp
        self._bytes_since_entry = scan.bytes_since_entry
        self._tail = None
        if active:
            kept = scan.tail[-_TAIL_BATCHES // 2 :]
            floor = kept[0].base_offset if kept else self.base_offset
            self._tail = _Tail(floor, [b.position for b in kept], [b.last_offset for b in kept])
        else:
            self.become_inactive()

    # -- finding ------------------------------------------------------------------------------------------

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at a position, or None."""
        raw = self.log.pread(HEADER_SIZE, position)
        return read_header(raw, 0) if len(raw) == HEADER_SIZE else None

    def find(self, offset: int, *, nowait: bool = False) -> tuple[int, int] | None:
        """Return (position, size) of the first batch whose last offset is at or after `offset`; None past the end."""
        tail = self._tail
        if tail is not None and offset >= tail.floor:
            end = self.size
            n = bisect_left(tail.last_offsets, offset)
            if n == len(tail.last_offsets):
                return None
            position = tail.positions[n]
            following = tail.positions[n + 1] if n + 1 < len(tail.last_offsets) else end
            return position, following - position
        start = self.near(offset, nowait=nowait)
        for batch in self.locate(start, nowait=nowait):
            if batch.last_offset >= offset:
                return batch.position, batch.size
        return None

    def near(self, offset: int, *, nowait: bool = False) -> int:
        """Return the position of a batch at or before the one that holds `offset`, as near as the index allows.

        What a crash may have done to the index is noticed: the batch there must be one that can be there.
        """
        n = self.offset_index.floor(offset, nowait=nowait)
        return self._checked(n, nowait) if n >= 0 else 0

    def _checked(self, n: int, nowait: bool) -> int:
        last_offset, position = self.offset_index.at(n, nowait=nowait)
        if position + HEADER_SIZE <= self.size:
            raw = self.log.pread(_LOCATOR.size, position, nowait=nowait)
            if len(raw) == _LOCATOR.size:
                base_offset, length, _, magic, _, _, delta = _LOCATOR.unpack(raw)
                # Kafka's followers once indexed whole appends by their last offset: so "at most", not "equal".
                in_place = self.base_offset <= base_offset <= base_offset + delta <= last_offset
                if in_place and magic == MAGIC and length >= MIN_LENGTH:
                    return position
        return 0

    def locate(self, position: int, *, nowait: bool = False) -> Iterator[BatchPosition]:
        """Iterate over the batches from a position on; of large batches only the headers are read."""
        log = self.log
        end = self.size
        chunk: Buffer = b""
        chunk_start = 0
        need = _LOCATOR.size
        while position + HEADER_SIZE <= end:
            at = position - chunk_start
            if at + need > len(chunk):
                chunk = log.pread(min(_SCAN_BYTES, end - position), position, nowait=nowait)
                chunk_start = position
                at = 0
                if len(chunk) < need:
                    return  # truncated meanwhile
            base_offset, length, _, magic, _, _, delta = _LOCATOR.unpack_from(chunk, at)
            if magic != MAGIC or length < MIN_LENGTH:
                raise CorruptBatchError(f"{self.path}: no batch of magic {MAGIC} at position {position}")
            yield BatchPosition(position, length + 12, base_offset, base_offset + delta)
            position += length + 12

    def batches(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Iterate over whole batches from a position on: (position, header, bytes). Stops at an incomplete batch."""
        log = self.log
        end = self.size if end is None else min(end, self.size)
        chunk = memoryview(b"")
        chunk_start = position
        while position + HEADER_SIZE <= end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = log.pread(min(_READ_AHEAD, end - position), position), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            header = read_header(chunk, at)
            if header.magic != MAGIC or header.length < MIN_LENGTH:
                raise CorruptBatchError(f"{self.path}: no batch of magic {MAGIC} at position {position}")
            size = header.length + 12
            if position + size > end:
                return
            if at + size > len(chunk):
                wanted = min(max(_READ_AHEAD, size), end - position)
                chunk, chunk_start, at = log.pread(wanted, position), position, 0
                if len(chunk) < size:
                    return
            yield position, header, chunk[at : at + size]
            position += size

    def next_offset(self) -> int:
        """Return the offset after the last batch."""
        tail = self._tail
        if tail is not None and tail.last_offsets:
            return tail.last_offsets[-1] + 1
        if tail is not None and not self.size:
            return self.base_offset
        last = None
        entries = len(self.offset_index)
        for batch in self.locate(self._checked(entries - 1, False) if entries else 0):
            last = batch
        return self.base_offset if last is None else last.last_offset + 1

    # -- changing -----------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batches from the one that holds `offset` on. Returns the number of bytes removed."""
        found = self.find(offset)
        self._indexes_full = None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._tail = None
        self._bytes_since_entry = 0
        dropped = 0
        if found is not None:
            dropped = self.size - found[0]
            self.log.truncate(found[0])
            self.size = found[0]
            self.cut = True
        if not self.size:
            self.created_ms = now_ms
            self.first_timestamp = None
        self._max = self._largest_after_truncation()
        return dropped

    def _largest_after_truncation(self) -> tuple[int, int]:
        best = self.time_index.last_entry()
        for _, header, _ in self.batches(self.near(best[1])):
            if header.max_timestamp > best[0]:
                best = (header.max_timestamp, header.last_offset)
        return best

    def become_inactive(self) -> None:
        """Complete the indexes: the segment gets no more batches."""
        self._write_last_time_entry()
        self.offset_index.ensure_file()
        self.time_index.ensure_file()
        self.indexes_unsynced = True
        self._tail = None

    def _write_last_time_entry(self) -> None:
        if self._max is not None and self._max[0] >= 0:
            self.time_index.maybe_append(*self._max)

    def fsync(self, *, indexes: bool) -> None:
        """Sync the log, and the indexes of a complete segment. Recovery rebuilds those of the active one.

        A complete segment then closes its files until the next read.
        """
        self.cut = False
        self.log.fsync()
        if indexes:
            self.offset_index.fsync()
            self.time_index.fsync()
            self.txn_index.fsync()
            self.indexes_unsynced = False
            self.close_files()

    def change_suffix(self, suffix: str) -> None:
        """Rename all files to another suffix: `.swap`, `.deleted` or none."""
        old = self.path
        self._suffix = suffix
        self._fs.rename(old, self.path)
        base = f"{self._dir}/{stem(self.base_offset)}"
        self.offset_index.rename(base + INDEX_SUFFIX + suffix)
        self.time_index.rename(base + TIME_INDEX_SUFFIX + suffix)
        self.txn_index.rename(base + TXN_INDEX_SUFFIX + suffix)

    def moved_to(self, directory: str) -> None:
        """Update the paths after the directory was renamed."""
        self._dir = directory
        base = f"{directory}/{stem(self.base_offset)}"
        self.offset_index.path = base + INDEX_SUFFIX + self._suffix
        self.time_index.path = base + TIME_INDEX_SUFFIX + self._suffix
        self.txn_index.path = base + TXN_INDEX_SUFFIX + self._suffix

    def paths(self) -> list[str]:
        return [self.path, self.offset_index.path, self.time_index.path, self.txn_index.path]

    def close(self) -> None:
        """Write the indexes to their files and close all files."""
        self._write_last_time_entry()
        self.offset_index.ensure_file()
        self.time_index.ensure_file()
        if self._log is not None:
            self._log.release_preallocation()
        self.close_files()

    def close_files(self) -> None:
        """Close the files; readers in other threads can finish. The next use opens them again."""
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        self._log = None

    def close_idle_files(self) -> None:
        """Close the files if they were not used since the last call."""
        if not self.used and self._log is not None:
            self.close_files()
        self.used = False
