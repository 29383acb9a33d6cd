"""Disk space for files that grow fast, set aside ahead of them and off the event loop.

Otherwise the kernel looks for space while it writes a file out, and whoever appends to that file meanwhile waits: on
a busy disk for tenths of a second, as ext4 reads its maps of free blocks then. What is set aside lies behind the end
of the file and does not change its size.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.log.fs import OsFile
    from ottla.log.write_gate import WriteGate

_logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 << 20
"""What a large file gets at most at a time; a small one gets no more than it has."""

FIRST_LOOK_BYTES: Final = 4 << 20
"""Smaller files get nothing, and it is looked again each time a file has grown by so much."""

AHEAD_S: Final = 8
"""A file gets space for so long, as it has grown lately: what it may not use after all is little."""

SMALLEST_BYTES: Final = 4 << 20
"""A file for which that is less than this grows slowly, and gets none."""

_TICK_S: Final = 0.001

NEVER: Final = 1 << 62

_FALLOC_FL_KEEP_SIZE: Final = 1
_GONE: Final = frozenset({errno.EBADF, errno.ENOENT})
"""The file was closed meanwhile, or its directory removed."""
_NOT_HERE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

Reserve = Callable[[int, int, int], None]
"""Set space aside for a descriptor: from an offset, so many bytes. Raises OSError."""


def fallocate() -> Reserve | None:
    """Linux's fallocate that leaves the size alone, which Python has no call for; None on other systems."""
    import ctypes  # takes milliseconds to load, and few need it

    libc = ctypes.CDLL(None, use_errno=True)
    call: Any = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def reserve(fd: int, offset: int, size: int) -> None:
        if call(fd, _FALLOC_FL_KEEP_SIZE, offset, size):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return reserve


class SpaceReserver:
    """Reserves for the files of one node, one after the other in a thread of its own, behind its closed gate.

    Made and asked on the event loop.
    """

    __slots__ = ("_clock", "_executor", "_gate", "_post", "_reserve", "_thread")

    def __init__(
        self,
        clock: Clock,
        gate: WriteGate,
        post: Callable[..., object],
        *,
        executor: Executor | None = None,
        reserve: Reserve | None = None,
    ) -> None:
        self._clock = clock
        self._gate = gate
        self._post = post
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="ottla-room")
        self._thread = threading.get_ident()
        self._reserve = reserve
        """Loaded in the thread, when the first file is found to grow fast."""

    def look(self, file: OsFile, size: int, limit: int, beside: Sequence[str] = ()) -> int:
        """A file has grown to `size` and will not grow beyond `limit`. Gives the size to look again at.

        The files `beside` it are wanted at its end at the latest; made here, they do not hold up the event loop then.
        """
        if threading.get_ident() != self._thread:
            return NEVER  # the cleaner's file: nobody waits for it, and the gate is the event loop's
        now = self._clock.monotonic()
        (then, size_then), file.looked = file.looked, (now, size)
        if size >= limit:
            return NEVER
        chunk = min(size, CHUNK_BYTES, int(AHEAD_S * (size - size_then) / max(now - then, _TICK_S)))
        if size_then and chunk >= SMALLEST_BYTES:
            start = max(size, file.room_until)
            end = min(start + chunk, limit)
            file.room_until = end
            self._gate.hold()
            work = self._executor.submit(self._set_aside, file, start, end - start, beside)
            work.add_done_callback(self._done)
            return end - chunk // 8 if end < limit else NEVER
        return size + FIRST_LOOK_BYTES

    def stop(self) -> None:
        """What is under way runs to its end."""
        self._executor.shutdown()

    def _set_aside(self, file: OsFile, start: int, size: int, beside: Sequence[str]) -> None:
        if self._reserve is None:
            self._reserve = fallocate() or _nothing
        try:
            file.set_aside(self._reserve, start, size, beside)
        except OSError as error:
            if error.errno in _NOT_HERE:
                self._reserve = _nothing
            elif error.errno not in _GONE:
                # A full disk is told by the append that does not fit any more.
                _logger.debug("no space set aside for %s: %s", file.path, error)

    def _done(self, future: Future[None]) -> None:
        self._post(self._gate.release)
        error = future.exception()
        if error is not None:
            _logger.error("Unexpected error while space was set aside", exc_info=error)


def _nothing(fd: int, offset: int, size: int) -> None:
    """Where the system has no such call."""
