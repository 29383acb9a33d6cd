"""What a partition log asks of its surroundings: files, time, chance, and who to tell of work and failure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.log.fs import Fs

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _do_nothing(*_: object) -> None:
    return


@dataclass(slots=True)
class LogContext:
    """The defaults suit a log on its own (raft's): files go at once, and its owner flushes when it wants to."""

    fs: Fs
    now_ms: Callable[[], int] = _now_ms
    random: random.Random = field(default_factory=random.Random)
    producer_id_expiration_ms: int = 86_400_000
    request_flush: Callable[[PartitionLog, int], None] = _do_nothing
    """Flush a log up to an offset, soon and off the event loop."""
    remove_later: Callable[[Sequence[str], int], None] | None = None
    """Remove files after so many milliseconds, off the event loop; None removes them at once."""
    on_truncated: Callable[[PartitionLog, int], None] = _do_nothing
    """A log was cut at an offset."""
    on_io_error: Callable[[OSError], None] = _do_nothing
    """A log's directory failed."""

    def remove(self, paths: Sequence[str], delay_ms: int) -> None:
        if self.remove_later is not None:
            self.remove_later(paths, delay_ms)
            return
        for path in paths:
            self.fs.remove(path)
