"""Disk space preallocation (Linux `fallocate`) for log segments that grow fast, off the event loop.

Without it the kernel allocates blocks during writeback, and an append to the same file waits for that. On a busy disk
such a wait takes tenths of a second, because ext4 first reads its maps of free blocks. Preallocated space lies behind
the end of the file and does not change its size.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ottla.log.fs import NEVER, Reserve, fallocate

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.log.fs import OsFile
    from ottla.log.write_gate import WriteGate

_logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 << 20
"""The most that one preallocation reserves. A file smaller than this reserves at most its own size."""

FIRST_LOOK_BYTES: Final = 4 << 20
"""Smaller files get no preallocation. The growth is measured again after every such number of bytes."""

AHEAD_S: Final = 8
"""Reserve what the file needs for this many seconds at its recent growth, so that little stays unused."""

SMALLEST_BYTES: Final = 4 << 20
"""A file that needs less than this grows slowly and gets no preallocation."""

_TICK_S: Final = 0.001

_GONE: Final = frozenset({errno.EBADF, errno.ENOENT})
"""The file was closed meanwhile, or its directory removed."""
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class SpaceReserver:
    """Preallocates space for the files of one node, one file at a time, in its own thread.

    The write gate stays closed meanwhile, since a write to the file would block. Use it on the event loop.
    """

    __slots__ = ("_clock", "_executor", "_gate", "_post", "_reserve", "_thread", "reserved_bytes")

    def __init__(
        self,
        clock: Clock,
        gate: WriteGate,
        post: Callable[..., object],
        *,
        executor: Executor | None = None,
        reserve: Reserve | None = None,
    ) -> None:
        self.reserved_bytes = 0
        """What was preallocated since the start."""
        self._clock = clock
        self._gate = gate
        self._post = post
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="ottla-preallocation")
        self._thread = threading.get_ident()
        self._reserve = reserve
        """Loaded in the thread, when the first file grows fast."""

    def on_growth(self, file: OsFile, size: int, limit: int, beside: Sequence[str] = ()) -> int:
        """Preallocate if a file of `size` bytes grows fast, up to `limit`. Returns the size at which to call again.

        Also creates the files `beside` it (the indexes), so that the event loop does not have to do it at the roll.
        """
        if threading.get_ident() != self._thread:
            return NEVER  # the cleaner writes this file: no request waits for it, and the gate is the event loop's
        now = self._clock.monotonic()
        (then, size_then), file.last_growth = file.last_growth, (now, size)
        if size >= limit:
            return NEVER
        chunk = min(size, CHUNK_BYTES, int(AHEAD_S * (size - size_then) / max(now - then, _TICK_S)))
        if size_then and chunk >= SMALLEST_BYTES:
            start = max(size, file.preallocated_until)
            end = min(start + chunk, limit)
            file.preallocated_until = end
            self.reserved_bytes += end - start
            self._gate.hold()
            work = self._executor.submit(self._preallocate, file, start, end - start, beside)
            work.add_done_callback(self._done)
            return end - chunk // 8 if end < limit else NEVER
        return size + FIRST_LOOK_BYTES

    def stop(self) -> None:
        """Stop the thread after the preallocation that is running."""
        self._executor.shutdown()

    def _preallocate(self, file: OsFile, start: int, size: int, beside: Sequence[str]) -> None:
        if self._reserve is None:
            self._reserve = fallocate() or _no_fallocate
        try:
            file.reserve_space(self._reserve, start, size, beside)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                self._reserve = _no_fallocate
            elif error.errno not in _GONE:
                # On a full disk the next append that does not fit reports the error.
                _logger.debug("Cannot preallocate %d bytes for %s: %s", size, file.path, error)

    def _done(self, future: Future[None]) -> None:
        self._post(self._gate.release)
        error = future.exception()
        if error is not None:
            _logger.error("Unexpected error while disk space was preallocated", exc_info=error)


def _no_fallocate(fd: int, offset: int, size: int) -> None:
    """Stand in for `fallocate` where the system has none."""
