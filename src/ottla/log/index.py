"""The sparse indexes of a segment: offset to position (8 bytes an entry) and timestamp to offset (12 bytes).

New entries wait in memory and reach the file in pages. Lookups read a few pages of the file, so an index
costs no memory. The segment decides when to add an entry.
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from ottla.log.fs import File, Fs
from ottla.log.types import NO_TIMESTAMP

_PENDING_BYTES = 4096
"""Bytes of new entries kept in memory before they are written. Recovery rebuilds what a crash loses."""


class _State(NamedTuple):
    """The state that readers in other threads see as a whole: entries in the file, then entries in memory."""

    in_file: int
    pending: bytearray


class SparseIndex:
    """A file of fixed-size entries in ascending order, with binary search."""

    __slots__ = ("_file", "_fs", "_state", "base_offset", "max_bytes", "path")

    ENTRY: ClassVar[struct.Struct]
    PADDING_FIELD: ClassVar[int]
    """The field that is zero only in the padding that Kafka preallocates behind the last entry."""

    def __init__(self, fs: Fs, path: str, base_offset: int, max_bytes: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self._file: File | None = None
        self._state: _State | None = None

    def _open(self) -> File:
        file = self._file
        if file is None:
            self._file = file = self._fs.open(self.path, create=True)
        return file

    def _loaded(self) -> _State:
        state = self._state
        if state is None:
            state = self._state = _State(self._load(), bytearray())
        return state

    def _load(self) -> int:
        """Count the entries, and cut off an incomplete one and the padding that a crashed Kafka leaves."""
        if not self._fs.exists(self.path):
            return 0
        file = self._open()
        size = file.size()
        entry = self.ENTRY
        count = size // entry.size
        field = self.PADDING_FIELD
        if count and entry.unpack(file.pread(entry.size, (count - 1) * entry.size))[field] == 0:
            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                if entry.unpack(file.pread(entry.size, middle * entry.size))[field] == 0:
                    high = middle
                else:
                    low = middle + 1
            count = low
        if count * entry.size != size:
            file.truncate(count * entry.size)
        return count

    def start_empty(self) -> None:
        """Begin with an empty index, without reading the file."""
        self._state = _State(0, bytearray())

    def __len__(self) -> int:
        in_file, pending = self._loaded()
        return in_file + len(pending) // self.ENTRY.size

    def entry(self, n: int, *, nowait: bool = False) -> tuple[int, int]:
        """Return the raw entry `n` (relative offsets)."""
        in_file, pending = self._loaded()
        size = self.ENTRY.size
        if n < in_file:
            return self.ENTRY.unpack(self._open().pread(size, n * size, nowait=nowait))
        return self.ENTRY.unpack_from(pending, (n - in_file) * size)

    def _append(self, raw: bytes) -> None:
        state = self._loaded()
        state.pending.extend(raw)
        if len(state.pending) >= _PENDING_BYTES:
            self.write_pending()

    def write_pending(self) -> None:
        """Write the entries in memory to the file, without a sync."""
        in_file, pending = self._loaded()
        if pending:
            self._open().append([pending])
            self._state = _State(in_file + len(pending) // self.ENTRY.size, bytearray())

    def ensure_file(self) -> None:
        """Create the file even without entries: Kafka expects it."""
        self.write_pending()
        self._open()

    def _floor(self, key: int, field: int, *, nowait: bool = False) -> int:
        """Return the last entry whose field is at most `key`, or -1."""
        return self._count_below(key + 1, field, nowait=nowait) - 1

    def _count_below(self, key: int, field: int, *, nowait: bool = False) -> int:
        """Return how many entries have a field less than `key`."""
        entry = self.ENTRY
        size = entry.size
        in_file, pending = self._loaded()
        if pending and entry.unpack_from(pending, 0)[field] < key:
            return in_file + _bisect(entry, pending, len(pending) // size, key, field)
        if not in_file:
            return 0
        file = self._open()
        per_page = 4096 // size
        low, high = 0, (in_file - 1) // per_page
        while low < high:
            middle = (low + high + 1) // 2
            if entry.unpack(file.pread(size, middle * per_page * size, nowait=nowait))[field] < key:
                low = middle
            else:
                high = middle - 1
        first = low * per_page
        count = min(per_page, in_file - first)
        page = file.pread(count * size, first * size, nowait=nowait)
        return first + _bisect(entry, page, len(page) // size, key, field)

    def _truncate_entries(self, count: int) -> None:
        self.write_pending()
        if count < self._loaded().in_file:
            self._open().truncate(count * self.ENTRY.size)
            self._state = _State(count, bytearray())

    def replace(self, raw: bytes) -> None:
        """Replace all entries; the file is written only if it differs. Used by recovery."""
        known_empty = self._state is not None and not len(self)
        if not known_empty and self._fs.exists(self.path):
            file = self._open()
            size = file.size()
            if size == len(raw) and bytes(file.pread(size, 0)) == raw:
                self._state = _State(len(raw) // self.ENTRY.size, bytearray())
                return
            file.truncate(0)
        self.start_empty()
        self._loaded().pending.extend(raw)
        self.write_pending()

    def fsync(self) -> None:
        """Sync the file. An index that was never written needs no sync."""
        file = self._file
        if file is not None:
            file.fsync()

    def rename(self, path: str) -> None:
        if self._fs.exists(self.path):
            self._fs.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Close the file; readers in other threads can finish. Entries in memory stay."""
        self._file = None


def _bisect(
    entry: struct.Struct, buf: bytes | bytearray | memoryview, count: int, key: int, field: int
) -> int:
    low, high = 0, count
    size = entry.size
    while low < high:
        middle = (low + high) // 2
        if entry.unpack_from(buf, middle * size)[field] < key:
            low = middle + 1
        else:
            high = middle
    return low


class OffsetIndex(SparseIndex):
    """Maps the last offset of a batch, relative to the segment, to the position of the batch."""

    __slots__ = ()

    ENTRY = struct.Struct(">ii")
    PADDING_FIELD = 1  # a position is never zero: the first batch of a segment gets no entry

    @property
    def is_full(self) -> bool:
        return len(self) >= self.max_bytes // 8

    def append(self, offset: int, position: int) -> None:
        self._append(self.ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int, *, nowait: bool = False) -> int:
        """Return a position near the batch that holds `offset`, at or before it."""
        n = self._floor(offset - self.base_offset, 0, nowait=nowait)
        return self.entry(n, nowait=nowait)[1] if n >= 0 else 0

    def floor(self, offset: int, *, nowait: bool = False) -> int:
        """Return the number of the last entry at or before an offset, or -1."""
        return self._floor(offset - self.base_offset, 0, nowait=nowait)

    def at(self, n: int, *, nowait: bool = False) -> tuple[int, int]:
        """Return (last offset, position) of an entry."""
        relative, position = self.entry(n, nowait=nowait)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and after an offset."""
        self._truncate_entries(self._count_below(offset - self.base_offset, 0))


class TimeIndex(SparseIndex):
    """Maps the largest timestamp so far to the last offset of its batch."""

    __slots__ = ("_last",)

    ENTRY = struct.Struct(">qi")
    PADDING_FIELD = 0  # a first entry of timestamp zero is taken for padding: it only costs a longer scan

    def __init__(self, fs: Fs, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(fs, path, base_offset, max_bytes)
        self._last: tuple[int, int] | None = None

    @property
    def is_full(self) -> bool:
        return len(self) >= self.max_bytes // 12 - 1

    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry, or (-1, base offset)."""
        last = self._last
        if last is None:
            count = len(self)
            if count:
                timestamp, relative = self.entry(count - 1)
                last = (timestamp, self.base_offset + relative)
            else:
                last = (NO_TIMESTAMP, self.base_offset)
            self._last = last
        return last

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is a new maximum."""
        if timestamp > self.last_entry()[0]:
            self._append(self.ENTRY.pack(timestamp, offset - self.base_offset))
            self._last = (timestamp, offset)

    def lookup(self, timestamp: int) -> int:
        """Return an offset at or before the first record that may have this timestamp or a later one."""
        n = self._floor(timestamp, 0)
        return self.base_offset + self.entry(n)[1] if n >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        self._truncate_entries(self._count_below(offset - self.base_offset, 1))
        self._last = None

    def replace(self, raw: bytes) -> None:
        super().replace(raw)
        self._last = None
