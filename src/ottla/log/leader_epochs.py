"""Leader epochs of a partition and their start offsets, kept in `leader-epoch-checkpoint`.

They show where the logs of different leaders diverge. The file has Kafka's text format, version 0.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.checkpoints import format_checkpoint
from ottla.log.files import LEADER_EPOCH_FILE
from ottla.log.fs import Fs
from ottla.log.types import NO_EPOCH, UNKNOWN_OFFSET


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


def epoch_at(entries: Iterable[EpochEntry], offset: int) -> int:
    """Return the epoch in which the record at an offset was written, or -1 if the entries begin after it."""
    found = NO_EPOCH
    for entry in entries:
        if entry.start_offset > offset:
            break
        found = entry.epoch
    return found


class LeaderEpochCache:
    """Entries ascending in both epoch and start offset. Every change reaches the file before it returns, but for
    `assign`: an epoch without a record is forgotten with the process anyway, so `write` is due before its first one.
    Changed on the event loop; `write` and `sync` may come from a thread.
    """

    __slots__ = (
        "_changes",
        "_directory",
        "_entries",
        "_fs",
        "_noted",
        "_unsynced",
        "_writing",
        "_written",
        "had_file",
        "unwritten",
    )

    def __init__(self, fs: Fs, directory: str, entries: Iterable[EpochEntry] = ()) -> None:
        self._fs = fs
        self._directory = directory
        self._entries: list[EpochEntry] = []
        self._changes = 0
        """Incremented by every `assign`, so that a writing thread notices new epochs."""
        self._writing = threading.Lock()
        self.had_file = False
        """Whether a file was loaded. It is written before the first record: records without it mean a crash."""
        self.unwritten = False
        """The file lacks an epoch that has begun already."""
        self._written: bytes | None = None
        """The content of the file; empty if unreliable, None without a file."""
        self._noted = False
        """Recovery found epochs that the file lacks."""
        self._unsynced = False
        """The file may have changes that are not on disk."""
        for entry in entries:
            self._insert(entry)

    @classmethod
    def load(cls, fs: Fs, directory: str, *, exists: bool) -> LeaderEpochCache:
        """Read the file. A damaged one counts as empty: recovery fills it from the batches."""
        if not exists:
            return cls(fs, directory)
        text = fs.read_bytes(f"{directory}/{LEADER_EPOCH_FILE}")
        cache = cls(fs, directory, _parse(text))
        cache._written = text if text == format_checkpoint(cache._entries) else b""
        # The process that wrote the file may have been killed before the sync.
        cache._unsynced = True
        cache.had_file = True
        return cache

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that an epoch begins at an offset, unless it is known to begin earlier."""
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return
        self._insert(EpochEntry(epoch, start_offset))
        self._changes += 1
        self.unwritten = True

    def write(self) -> None:
        """Write the assigned epochs to the file. Safe in a thread."""
        if self.unwritten:
            self._write()

    def _insert(self, entry: EpochEntry) -> None:
        entries = self._entries
        while entries and (
            entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset
        ):
            entries.pop()
        entries.append(entry)

    def note(self, epoch: int, start_offset: int) -> None:
        """Assign without writing the file: recovery writes once at its end."""
        if epoch > self.latest_epoch:
            self._insert(EpochEntry(epoch, start_offset))
            self._noted = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch at or below the requested one, or (-1, -1)."""
        entries = self._entries
        if epoch == NO_EPOCH or not entries:
            return NO_EPOCH, UNKNOWN_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        floor: EpochEntry | None = None
        for entry in entries:
            if entry.epoch > epoch:
                return (epoch if floor is None else floor.epoch), entry.start_offset
            floor = entry
        return NO_EPOCH, UNKNOWN_OFFSET

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after an offset."""
        entries = self._entries
        if entries and entries[-1].start_offset >= end_offset:
            while entries and entries[-1].start_offset >= end_offset:
                entries.pop()
            self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Move the start of the first epoch to the new log start."""
        entries = self._entries
        count = sum(1 for entry in entries if entry.start_offset <= start_offset)
        if count and (count > 1 or entries[0].start_offset != start_offset):
            entries[:count] = [EpochEntry(entries[count - 1].epoch, start_offset)]
            self._write()

    def clear(self) -> None:
        self._entries.clear()
        self._write()

    def moved_to(self, directory: str) -> None:
        with self._writing:  # otherwise a thread could still write into the directory of another log
            self._directory = directory

    def settle(self, log_start_offset: int, log_end_offset: int) -> None:
        """After loading: remove epochs outside the log, and write what recovery found."""
        entries = self._entries
        before = list(entries)
        while entries and entries[-1].start_offset >= log_end_offset:
            entries.pop()
        count = sum(1 for entry in entries if entry.start_offset <= log_start_offset)
        if count:
            entries[:count] = [EpochEntry(entries[count - 1].epoch, log_start_offset)]
        if self._noted or entries != before:
            self._noted = False
            self._write()

    def sync(self) -> None:
        """Sync the file. Safe in a thread: the next call syncs a change that comes meanwhile."""
        if self._unsynced:
            self._unsynced = False
            file = self._fs.open(self._path)
            file.fsync()
            file.close()
            self._fs.fsync_dir(self._directory)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{LEADER_EPOCH_FILE}"

    def _write(self) -> None:
        # No fsync here: the file survives a killed process, and `PartitionLog.flush` syncs it.
        with self._writing:
            changes = self._changes
            text = format_checkpoint(self._entries)
            if self._written is None:
                self._fs.write_bytes(self._path, text)
            elif _is_longer(text, self._written):
                # A replacement costs a disk a hundred times as much, and a failover may bring thousands.
                self._fs.overwrite(self._path, text)
            else:
                self._fs.write_atomic(self._path, text, sync=False)
            self._written = text
            self._unsynced = True
            if changes == self._changes:
                self.unwritten = False


def _is_longer(text: bytes, written: bytes) -> bool:
    """Return whether rows were only added, so that every old row stays in place."""
    head = text.index(b"\n", 2) + 1
    return len(written) >= head == written.find(b"\n", 2) + 1 and text.startswith(written[head:], head)


def _parse(text: bytes) -> list[EpochEntry]:
    """Return the rows of a file. After a crash between two versions it has at least the rows of the older one."""
    version, *lines = text.split(b"\n")
    entries: list[EpochEntry] = []
    try:
        if version.strip() != b"0":
            return entries
        # The text after the last newline is incomplete.
        for line in lines[1:-1][: int(lines[0])]:
            epoch, start_offset = map(int, line.split())
            entries.append(EpochEntry(epoch, start_offset))
    except (ValueError, IndexError):
        return entries
    return entries
