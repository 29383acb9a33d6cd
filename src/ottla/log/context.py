"""The services that a partition log needs from its owner: files, time, randomness and callbacks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.log.fs import Fs

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def _do_nothing(*_: object) -> None:
    return


@dataclass(slots=True)
class LogContext:
    """The services of one log. The default callbacks suit raft's log: it removes files at once and flushes itself."""

    fs: Fs
    now_ms: Callable[[], int]
    """`Clock.now_ms` of the node."""
    random: random.Random
    """`Clock.random` of the node."""
    producer_id_expiration_ms: int = 86_400_000
    request_flush: Callable[[PartitionLog, int], None] = _do_nothing
    """Flush a log up to an offset, soon and off the event loop."""
    remove_later: Callable[[Sequence[str], int], None] | None = None
    """Remove files after a delay in milliseconds, off the event loop. None removes them at once."""
    on_truncated: Callable[[PartitionLog, int], None] = _do_nothing
    """Called after a log was truncated to an offset."""
    on_io_error: Callable[[OSError], None] = _do_nothing
    """Called when the log's directory failed."""

    def remove(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after the delay, or at once without `remove_later`."""
        if self.remove_later is not None:
            self.remove_later(paths, delay_ms)
            return
        for path in paths:
            self.fs.remove(path)
