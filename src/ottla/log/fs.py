"""The file system interface: a broker opens, writes, renames and removes every file through an `Fs`.

`OsFs` is the machine's file system. `ottla.testing.memfs.MemFs` keeps files in memory for tests: a simulated crash
loses or corrupts what was not synced.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.log.read_buffers import ReadBuffers
from ottla.log.types import WouldBlock

if TYPE_CHECKING:
    from ottla.log.preallocation import SpaceReserver

Buffer = bytes | bytearray | memoryview

NEVER: Final = 1 << 62
"""A file size that no file reaches."""

Reserve = Callable[[int, int, int], None]
"""Preallocate disk space for a file descriptor: (descriptor, offset, size). Raises OSError."""


class DirEntry(NamedTuple):
    name: str
    is_dir: bool


class Stat(NamedTuple):
    size: int
    mtime_ms: int


class Lock(Protocol):
    """A held lock file, freed by `release` or when the process dies."""

    def release(self) -> None: ...


class File(Protocol):
    """An open file. Reads are safe in any thread, also while another one appends, truncates or closes it."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, offset: int, *, nowait: bool = False) -> memoryview:
        """Up to `size` bytes at `offset`; short only at the end of the file.

        With `nowait`, raises `WouldBlock` when the bytes are not in memory.
        """
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append all buffers, or raise `OSError` and leave the file as it was."""
        ...

    def truncate(self, size: int) -> None: ...

    def preallocate(self, size: int, limit: int, beside: Sequence[str] = ()) -> int:
        """Hint that the file has `size` bytes and may grow to `limit`: preallocate space soon, create the files beside.

        Returns the size at which to call again.
        """
        ...

    def release_preallocation(self) -> None:
        """Release the preallocated space: the file does not grow any more."""
        ...

    def fsync(self) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Close the file. The descriptor is closed once no reader in any thread uses it."""
        ...


class Fs(Protocol):
    """A file system. Paths are plain strings; errors are `OSError` with the usual errno."""

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        """Open for reading and appending; `create` creates a missing file, `truncate` empties it."""
        ...

    def listdir(self, path: str) -> list[str]: ...

    def entries(self, path: str) -> list[DirEntry]: ...

    def stat(self, path: str) -> Stat: ...

    def exists(self, path: str) -> bool: ...

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Create a directory unless it exists."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file; it replaces a file at `new`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        ...

    def rmtree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace a file without protection against a crash: for data that can be rebuilt."""
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Write over the beginning of a file, in place. After a crash each byte may be the old or the new one."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace a whole file: temporary file, fsync, rename, fsync of the directory (the syncs only with `sync`)."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Take an exclusive lock on a lock file, or None where another process holds it."""
        ...

    def disk_usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds the path."""
        ...

    def use_preallocation(self, reserver: SpaceReserver) -> None:
        """Preallocate space for files that grow fast from now on."""
        ...


class _Descriptor:
    """A file descriptor that closes itself when the last reference is gone: readers in threads hold one."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


_BUFFERS: Final = ReadBuffers()
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_CLOSED = "file is closed"
_FALLOC_FL_KEEP_SIZE: Final = 1
_MAX_BUFFERS = 512
"""Below IOV_MAX everywhere."""


class OsFile:
    """A file of the operating system, opened for appending."""

    __slots__ = ("_fd", "_reserver", "last_growth", "path", "preallocated_until")

    def __init__(self, path: str, fd: int, reserver: SpaceReserver | None = None) -> None:
        self.path = path
        self._fd: _Descriptor | None = _Descriptor(fd)
        self._reserver = reserver
        self.last_growth = (0.0, 0)
        """When growth was last measured, and the size of the file then."""
        self.preallocated_until = 0
        """The end of the preallocated space."""

    def _descriptor(self) -> _Descriptor:
        fd = self._fd
        if fd is None:
            raise OSError(errno.EBADF, _CLOSED, self.path)
        return fd

    def pread(self, size: int, offset: int, *, nowait: bool = False) -> memoryview:
        global _NOWAIT
        fd = self._descriptor()
        if not nowait or not _NOWAIT:
            # A platform without RWF_NOWAIT, or a file system that refuses it, reads inline: the page
            # cache has the bytes almost always.
            return memoryview(os.pread(fd.number, size, offset))
        buf = _BUFFERS.take(size)
        try:
            count = os.preadv(fd.number, [buf], offset, _NOWAIT)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as e:
            if e.errno not in _UNSUPPORTED:
                raise
            _NOWAIT = 0
            return memoryview(os.pread(fd.number, size, offset))
        if count < size and offset + count < os.fstat(fd.number).st_size:
            raise WouldBlock
        return buf[:count]

    def append(self, buffers: Sequence[Buffer]) -> int:
        fd = self._descriptor()
        if len(buffers) > _MAX_BUFFERS:
            buffers = [b"".join(buffers)]
        total = 0
        for b in buffers:
            total += len(b)
        written = os.writev(fd.number, buffers)
        if written != total:
            self._append_rest(fd, buffers, written, total)
        return total

    def _append_rest(self, fd: _Descriptor, buffers: Sequence[Buffer], written: int, total: int) -> None:
        """Finish a short write; undo it where the rest fails, so that no half batch stays."""
        rest = b"".join(buffers)
        try:
            while written < total:
                written += os.write(fd.number, memoryview(rest)[written:])
        except OSError:
            os.ftruncate(fd.number, os.fstat(fd.number).st_size - written)
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor().number, size)

    def preallocate(self, size: int, limit: int, beside: Sequence[str] = ()) -> int:
        return NEVER if self._reserver is None else self._reserver.on_growth(self, size, limit, beside)

    def reserve_space(self, reserve: Reserve, offset: int, size: int, beside: Sequence[str]) -> None:
        """Preallocate space now and create the files beside it. Blocks."""
        fd = self._descriptor()
        reserve(fd.number, offset, size)
        for path in beside:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def release_preallocation(self) -> None:
        if self.preallocated_until:
            self.preallocated_until = 0
            self.truncate(self.size())

    def fsync(self) -> None:
        fd = self._descriptor()
        os.fdatasync(fd.number)

    def size(self) -> int:
        return os.fstat(self._descriptor().number).st_size

    def fileno(self) -> int:
        return self._descriptor().number

    def close(self) -> None:
        self._fd = None


class _OsLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFs:
    """The file system of the machine."""

    __slots__ = ("_reserver",)

    def __init__(self) -> None:
        self._reserver: SpaceReserver | None = None

    def use_preallocation(self, reserver: SpaceReserver) -> None:
        self._reserver = reserver

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        if truncate:
            flags |= os.O_TRUNC
        return OsFile(path, os.open(path, flags, 0o644), self._reserver)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def entries(self, path: str) -> list[DirEntry]:
        with os.scandir(path) as it:
            return [DirEntry(e.name, e.is_dir()) for e in it]

    def stat(self, path: str) -> Stat:
        st = os.stat(path)
        return Stat(st.st_size, st.st_mtime_ns // 1_000_000)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        if parents:
            os.makedirs(path, exist_ok=True)
            return
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def rmtree(self, path: str) -> None:
        try:
            # Its archive formats take milliseconds to load.
            import shutil

            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, size, 0) if size else b""
        finally:
            os.close(fd)

    def write_bytes(self, path: str, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)

    def overwrite(self, path: str, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        tmp = path + ".tmp"
        fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(tmp, path)
        if sync:
            self.fsync_dir(os.path.dirname(path))

    def lock(self, path: str) -> Lock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        try:
            # Java's FileChannel.lock is a POSIX record lock. Take that too, so that Apache Kafka on the
            # same directory is noticed and notices this process.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(fd)
            if e.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise
        return _OsLock(fd)

    def disk_usage(self, path: str) -> tuple[int, int]:
        system = os.statvfs(path)
        return system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize


def fallocate() -> Reserve | None:
    """Return Linux's `fallocate` with FALLOC_FL_KEEP_SIZE, which Python does not offer; None on other systems."""
    import ctypes  # takes milliseconds to load, and few nodes need it

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def reserve(fd: int, offset: int, size: int) -> None:
        if call(fd, _FALLOC_FL_KEEP_SIZE, offset, size):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return reserve


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])
