"""Appends that must be on disk before they are acknowledged (`flush.messages`): one flush for all that wait.

The log decides when a flush is due and does it; this module knows the requests that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ApiException
from ottla.replica.offload import outcome

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.offload import Offloader

FlushDone = Callable[[ApiException | None], None]


class FlushQueue:
    """The flushes of one partition. While one runs in a thread, later requests wait for the next."""

    __slots__ = ("_flushing", "_offload", "_waiting")

    def __init__(self, offload: Offloader) -> None:
        self._offload = offload
        self._flushing: list[FlushDone] = []
        self._waiting: list[FlushDone] = []

    def add(self, log: PartitionLog, done: FlushDone) -> None:
        """Flush all that is in the log now; `done` is called on the event loop."""
        self._waiting.append(done)
        if not self._flushing:
            self._begin(log)

    def _begin(self, log: PartitionLog) -> None:
        self._flushing, self._waiting = self._waiting, []
        self._offload.run(partial(log.flush, log.log_end_offset), partial(self._flushed, log))

    def _flushed(self, log: PartitionLog, future: Future[None]) -> None:
        error = outcome(future)
        served, self._flushing = self._flushing, []
        if self._waiting:
            self._begin(log)
        for done in served:
            done(error)
