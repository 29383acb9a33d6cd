"""The transaction index of a segment: the aborted transactions that end in it, 34 bytes each.

A segment without aborted transactions has no file.
"""

from __future__ import annotations

import struct

from ottla.log.fs import File, Fs
from ottla.log.types import AbortedTxn

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class CorruptIndexError(Exception):
    """The entries of an index cannot belong to its segment: recovery rebuilds it from the log."""


class TransactionIndex:
    """The entries, in the order in which the transactions ended."""

    __slots__ = ("_entries", "_file", "_fs", "_unsynced", "base_offset", "path")

    def __init__(self, fs: Fs, path: str, base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None
        self._unsynced = True
        """The previous process may have left an existing file unsynced."""

    def start_empty(self) -> None:
        """Begin with an empty index: there is no file."""
        self._entries = []

    def entries(self) -> list[AbortedTxn]:
        """Return all entries; the first call reads the file. Callers must not change the list."""
        entries = self._entries
        if entries is None:
            raw = self._fs.read_bytes(self.path) if self._fs.exists(self.path) else b""
            whole = len(raw) // ENTRY.size * ENTRY.size
            entries = []
            for version, *fields in ENTRY.iter_unpack(raw[:whole]):
                if version > VERSION:
                    raise CorruptIndexError(f"{self.path}: unknown entry version {version}")
                entries.append(AbortedTxn(*fields))
            if whole != len(raw):
                self._fs.write_bytes(self.path, raw[:whole])
            self._entries = entries
        return entries

    def check(self) -> None:
        for txn in self.entries():
            if txn.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path}: {txn} ends before the segment begins")

    def append(self, txn: AbortedTxn) -> None:
        entries = self.entries()
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        self._unsynced = True
        self._file.append([ENTRY.pack(VERSION, *txn)])
        entries.append(txn)

    def collect(self, start: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """Return the aborted transactions that overlap [start, end), and whether later segments cannot add any."""
        found = []
        for txn in list(self.entries()):
            if txn.last_offset >= start and txn.first_offset < end:
                found.append(txn)
            if txn.last_stable_offset >= end:
                return found, True
        return found, False

    def replace(self, txns: list[AbortedTxn]) -> None:
        """Replace all entries. Used by recovery."""
        self.close()
        if txns:
            self._unsynced = True
            self._fs.write_bytes(self.path, b"".join(ENTRY.pack(VERSION, *txn) for txn in txns))
        else:
            self._fs.remove(self.path)
        self._entries = list(txns)

    def replace_if_changed(self, txns: list[AbortedTxn]) -> None:
        """Replace all entries, unless the file has them already."""
        try:
            same = self.entries() == txns
        except CorruptIndexError:
            same = False
        if not same:
            self.replace(txns)

    def truncate_to(self, offset: int) -> None:
        entries = self.entries()
        kept = [txn for txn in entries if txn.last_offset < offset]
        if len(kept) < len(entries):
            self.replace(kept)

    def fsync(self) -> None:
        """Sync the file, including what recovery or a truncation rewrote: later recoveries do not check it again."""
        if not self._unsynced:
            return
        self._unsynced = False
        if self._file is not None:
            self._file.fsync()
        elif self._fs.exists(self.path):
            file = self._fs.open(self.path)
            file.fsync()
            file.close()

    def rename(self, path: str) -> None:
        if self._fs.exists(self.path):
            self._fs.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        self._file = None
