"""An in-memory file system with fault injection, for the simulator and the recovery tests.

It separates written from synced data. `crash` returns the file system after a power loss: synced bytes stay, the
rest is randomly lost, torn or damaged.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.log.fs import NEVER, Buffer, DirEntry, Lock, Stat
from ottla.log.types import WouldBlock

if TYPE_CHECKING:
    from ottla.log.preallocation import SpaceReserver


class _Inode:
    """A file's bytes: as the running system sees them, and as they are on disk."""

    __slots__ = ("cached", "data", "mtime_ms", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.mtime_ms = 0
        self.cached = True


class MemFile:
    """An open file of a `MemFs`."""

    __slots__ = ("_fs", "_inode", "path")

    def __init__(self, fs: MemFs, path: str, inode: _Inode) -> None:
        self._fs = fs
        self.path = path
        self._inode: _Inode | None = inode

    def _node(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._inode

    def pread(self, size: int, offset: int, *, nowait: bool = False) -> memoryview:
        node = self._node()
        self._fs._check("read", self.path)
        if not node.cached:
            if nowait:
                raise WouldBlock
            node.cached = True
        return memoryview(bytes(node.data[offset : offset + size]))

    def append(self, buffers: Sequence[Buffer]) -> int:
        node = self._node()
        raw = b"".join(buffers)
        self._fs._check("write", self.path)
        self._fs._take_space(len(raw), self.path)
        node.data += raw
        node.mtime_ms = self._fs.now_ms()
        return len(raw)

    def truncate(self, size: int) -> None:
        self._fs._check("write", self.path)
        node = self._node()
        if size <= len(node.data):
            del node.data[size:]
        else:
            node.data += bytes(size - len(node.data))

    def preallocate(self, size: int, limit: int, beside: Sequence[str] = ()) -> int:
        return NEVER

    def release_preallocation(self) -> None:
        """Do nothing: no space was preallocated."""

    def fsync(self) -> None:
        self._fs._check("fsync", self.path)
        node = self._node()
        node.synced = bytes(node.data)

    def size(self) -> int:
        return len(self._node().data)

    def close(self) -> None:
        self._inode = None


class _MemLock:
    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class MemFs:
    """Files and directories in memory. `fault` is called before every operation and may raise `OSError`."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.fault: Callable[[str, str], None] | None = None
        self.space: int | None = None
        """Bytes left on the disk; None means unlimited."""
        self.directory_space: dict[str, int] = {}
        """Bytes left in single directories, each a disk of its own."""
        self.descriptors_left: int | None = None
        """How many files and connections can still be opened; None means unlimited."""
        self._files: dict[str, _Inode] = {}
        self._dirs: set[str] = {"/"}
        self._synced_files: dict[str, _Inode] = {}
        self._synced_dirs: set[str] = {"/"}
        self._locks: set[str] = set()

    # -- faults -------------------------------------------------------------------------------------------

    def _check(self, operation: str, path: str) -> None:
        if self.fault is not None:
            self.fault(operation, path)

    def take_descriptor(self, path: str) -> None:
        """Open a file or a connection. Raises EMFILE if none is left."""
        if self.descriptors_left is not None:
            if self.descriptors_left <= 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self.descriptors_left -= 1

    def _take_space(self, size: int, path: str) -> None:
        for directory, left in self.directory_space.items():
            if path.startswith(directory + "/"):
                if size > left:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                self.directory_space[directory] = left - size
        if self.space is not None:
            if size > self.space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.space -= size

    def evict(self, path: str) -> None:
        """Drop a file from the page cache: the next read with `nowait` raises `WouldBlock`."""
        self._files[path].cached = False

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage a file, on disk and in memory."""
        node = self._files[path]
        node.data[bit // 8] ^= 1 << bit % 8
        node.synced = bytes(node.data)

    def kill(self) -> MemFs:
        """Return the file system after the process was killed: all writes stay, locks are free."""
        fs = MemFs(self.now_ms)
        fs._dirs = set(self._dirs)
        for path, node in self._files.items():
            copy = fs._files[path] = _Inode()
            copy.data, copy.synced, copy.mtime_ms = bytearray(node.data), node.synced, node.mtime_ms
        fs._synced_files = {p: fs._files[p] for p in self._synced_files if p in fs._files}
        fs._synced_dirs = set(self._synced_dirs)
        return fs

    def crash(self, rng: random.Random) -> MemFs:
        """Return the file system after a power loss: unsynced data survives in part, damaged, or not at all."""
        fs = MemFs(self.now_ms)
        fs._dirs = set(self._synced_dirs)
        for path in sorted(self._dirs - self._synced_dirs):
            if rng.random() < 0.5 and os.path.dirname(path) in fs._dirs:
                fs._dirs.add(path)
        survivors = dict(self._synced_files)
        names = {node: path for path, node in self._files.items()}
        for path, node in self._synced_files.items():
            if self._files.get(path) is node or rng.random() < 0.5:
                continue
            # The rename or removal reached the disk without a sync; a rename is atomic.
            if survivors[path] is node and (node in names or path not in self._files):
                del survivors[path]
            if node in names:
                survivors[names[node]] = node
        synced = set(self._synced_files.values())
        for path, node in self._files.items():
            if node not in synced and rng.random() < 0.5:
                survivors[path] = node  # the name of a new file reached the disk without a sync
        for path, node in survivors.items():
            if os.path.dirname(path) in fs._dirs:
                copy = fs._files[path] = _Inode()
                copy.data = bytearray(_after_crash(node, rng))
                copy.mtime_ms = node.mtime_ms
                copy.synced = bytes(copy.data)
        fs._synced_files = dict(fs._files)
        fs._synced_dirs = set(fs._dirs)
        return fs

    # -- the file system ----------------------------------------------------------------------------------

    def files(self) -> list[str]:
        """The paths of all files."""
        return sorted(self._files)

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> MemFile:
        self.take_descriptor(path)
        node = self._files.get(path)
        if node is None:
            if not create:
                raise _missing(path)
            self._check("create", path)
            if os.path.dirname(path) not in self._dirs:
                raise _missing(path)
            node = self._files[path] = _Inode()
            node.mtime_ms = self.now_ms()
        elif truncate:
            node.data.clear()
        return MemFile(self, path, node)

    def listdir(self, path: str) -> list[str]:
        return [entry.name for entry in self.entries(path)]

    def entries(self, path: str) -> list[DirEntry]:
        self._check("list", path)
        if path not in self._dirs:
            raise _missing(path)
        prefix = path.rstrip("/") + "/"
        cut = len(prefix)
        found = [DirEntry(p[cut:], False) for p in self._files if p.startswith(prefix) and "/" not in p[cut:]]
        found += [
            DirEntry(d[cut:], True)
            for d in self._dirs
            if d.startswith(prefix) and "/" not in d[cut:] and d != path
        ]
        return sorted(found)

    def stat(self, path: str) -> Stat:
        node = self._files.get(path)
        if node is None:
            raise _missing(path)
        return Stat(len(node.data), node.mtime_ms)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._dirs

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._check("mkdir", path)
        parent = os.path.dirname(path)
        if parents and parent not in self._dirs:
            self.mkdir(parent, parents=True)
        if parent not in self._dirs:
            raise _missing(parent)
        self._dirs.add(path)

    def rename(self, old: str, new: str) -> None:
        self._check("rename", new)
        if old in self._dirs:
            for path in [p for p in self._files if p.startswith(old + "/")]:
                self._files[new + path[len(old) :]] = self._files.pop(path)
            for path in [d for d in self._dirs if d == old or d.startswith(old + "/")]:
                self._dirs.discard(path)
                self._dirs.add(new + path[len(old) :])
            return
        if old not in self._files:
            raise _missing(old)
        node = self._files.pop(old)
        if new in self._files:
            # As ext4, btrfs and APFS do: a file that replaces another is written out before it takes the name.
            node.synced = bytes(node.data)
        self._files[new] = node

    def remove(self, path: str) -> None:
        self._check("remove", path)
        self._files.pop(path, None)

    def rmtree(self, path: str) -> None:
        self._check("remove", path)
        for name in [p for p in self._files if p.startswith(path + "/")]:
            del self._files[name]
        self._dirs = {d for d in self._dirs if d != path and not d.startswith(path + "/")}

    def use_preallocation(self, reserver: SpaceReserver) -> None:
        """Do nothing: memory needs no preallocation."""

    def fsync_dir(self, path: str) -> None:
        """Sync the names in the directory: new ones and removals."""
        self._check("fsync", path)
        self._synced_dirs.add(path)
        prefix = path.rstrip("/") + "/"
        cut = len(prefix)
        files, synced = self._files, self._synced_files
        for name in [n for n in synced if n.startswith(prefix) and n.find("/", cut) < 0]:
            if files.get(name) is not synced[name]:
                del synced[name]
        for name, node in files.items():
            if name.startswith(prefix) and name.find("/", cut) < 0:
                synced[name] = node
        self._synced_dirs.update(d for d in self._dirs if d.startswith(prefix) and d.find("/", cut) < 0)
        gone = {d for d in self._synced_dirs if d.startswith(prefix) and d not in self._dirs}
        if gone:
            self._synced_dirs -= gone
            self._synced_files = {p: n for p, n in synced.items() if os.path.dirname(p) not in gone}

    def read_bytes(self, path: str) -> bytes:
        self._check("read", path)
        node = self._files.get(path)
        if node is None:
            raise _missing(path)
        return bytes(node.data)

    def write_bytes(self, path: str, data: bytes) -> None:
        self.open(path, create=True, truncate=True).append([data])

    def overwrite(self, path: str, data: bytes) -> None:
        self._check("write", path)
        node = self._files.get(path)
        if node is None:
            raise _missing(path)
        self._take_space(max(0, len(data) - len(node.data)), path)
        node.data[: len(data)] = data
        node.mtime_ms = self.now_ms()

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        file = self.open(path + ".tmp", create=True, truncate=True)
        file.append([data])
        if sync:
            file.fsync()
        self.rename(path + ".tmp", path)
        if sync:
            self.fsync_dir(os.path.dirname(path))

    def lock(self, path: str) -> Lock | None:
        self.open(path, create=True)
        if path in self._locks:
            return None
        self._locks.add(path)
        return _MemLock(self._locks, path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        used = sum(len(node.data) for node in self._files.values())
        free = (1 << 40) - used if self.space is None else self.space
        return used + free, free


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _after_crash(node: _Inode, rng: random.Random) -> bytes:
    """Return the synced bytes, and a random part of the rest: cut, zeroed, or with a flipped bit."""
    synced, data = node.synced, bytes(node.data)
    if data[: len(synced)] != synced:
        # Truncated or rewritten since the last sync: either state is possible.
        return data if rng.random() < 0.5 else synced
    fresh = bytearray(data[len(synced) :])
    if not fresh:
        return data
    fate = rng.random()
    if fate < 0.3:
        del fresh[:]
    elif fate < 0.6:
        del fresh[rng.randrange(len(fresh)) :]
    elif fate < 0.75:
        hole = rng.randrange(len(fresh))
        length = rng.randrange(1, len(fresh) - hole + 1)
        fresh[hole : hole + length] = bytes(length)
    elif fate < 0.9:
        bit = rng.randrange(len(fresh) * 8)
        fresh[bit // 8] ^= 1 << bit % 8
    return synced + bytes(fresh)
