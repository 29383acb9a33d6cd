"""Creation of new partitions' logs in a thread, a few at a time; requests that need them wait here, in their order.

A log is a directory and some files: most of a millisecond on an idle disk, and much more on a busy one. Callers that
cannot wait create the log synchronously (`Partition.local_log`), also one that the thread has not reached yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clock import Clock
from ottla.limits import MAX_BYTES_WAITING_FOR_LOGS
from ottla.replica.offload import outcome

if TYPE_CHECKING:
    from ottla.replica.offload import Offloader
    from ottla.replica.partition import Partition

SLICE_S: Final = 0.003
"""How long waiting requests may hold the event loop at a time; the last of them may exceed it."""

_BATCH: Final = 32
"""Logs that the thread gets at a time: a prioritized log waits for at most this many others."""

Create = Callable[[], object]
Begin = Callable[["Partition", bool], "Create | None"]
"""The thread's work for a partition's log; if the flag is set, also for records to be appended to it."""


class _Waiting(NamedTuple):
    partitions: list[Partition]
    proceed: Callable[[], None]
    size: int


class LogCreator:
    """The partitions that need logs, and the requests that wait for them. Owned by the replica manager."""

    __slots__ = (
        "_begin",
        "_bytes",
        "_clock",
        "_in_thread",
        "_offload",
        "_opened",
        "_prioritized",
        "_queue",
        "_scheduled",
        "_stopped",
        "_waiting",
    )

    def __init__(
        self, clock: Clock, offload: Offloader, begin: Begin, opened: Callable[[Partition], None]
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._begin = begin
        self._opened = opened
        self._queue: dict[Partition, None] = {}
        self._prioritized: dict[Partition, None] = {}
        """Partitions whose records wait."""
        self._in_thread: dict[Partition, None] = {}
        """Partitions whose logs the thread creates now."""
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._scheduled = False
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether logs are being created, or requests still wait for their turn."""
        return bool(self._queue or self._prioritized or self._in_thread or self._waiting)

    def add(self, partition: Partition) -> None:
        """Create a partition's log soon."""
        self._queue[partition] = None
        self._schedule()

    def discard(self, partition: Partition) -> None:
        """The partition was removed."""
        self._queue.pop(partition, None)
        self._prioritized.pop(partition, None)

    def prioritize(self, partitions: list[Partition], size: int, proceed: Callable[[], None]) -> None:
        """Create these logs before others, ready for records, then call back, after all earlier callers.

        If more bytes wait than the limit allows, this caller and all earlier ones are called at once.
        """
        for partition in partitions:
            self._queue.pop(partition, None)
            self._prioritized[partition] = None
        self._waiting.append(_Waiting(partitions, proceed, size))
        self._bytes += size
        if self._stopped or self._bytes > MAX_BYTES_WAITING_FOR_LOGS:
            self._call_all()
        else:
            self._schedule()

    def after_all(self, proceed: Callable[[], None]) -> None:
        """Call back when the logs that are requested now are created."""
        self._waiting.append(_Waiting([*self._in_thread, *self._prioritized, *self._queue], proceed, 0))
        self._schedule()

    def stop(self) -> None:
        """Give no more work to the thread. Waiting requests create missing logs themselves, or get the error."""
        self._stopped = True
        self._queue.clear()
        self._prioritized.clear()
        self._call_all()

    # -- turns

    def _schedule(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._clock.call_later(0.0, self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        if not self._in_thread:
            self._start_next()
        self._proceed()

    def _start_next(self) -> None:
        """Give the next few logs to the thread, prioritized ones first."""
        end = self._clock.monotonic() + SLICE_S
        work: list[Create] = []
        while (queue := self._prioritized or self._queue) and len(work) < _BATCH:
            partition = next(iter(queue))
            del queue[partition]
            create = self._begin(partition, queue is self._prioritized)
            if create is not None:
                work.append(create)
                self._in_thread[partition] = None
            if self._clock.monotonic() >= end:
                break
        if work:
            self._offload.run(partial(run, work), self._created)
        elif queue:
            self._schedule()

    def _created(self, future: Future[None]) -> None:
        outcome(future)  # logs unexpected errors; requests get theirs when they open the log
        made, self._in_thread = self._in_thread, {}
        if self._stopped:
            return
        for partition in made:
            self._opened(partition)
        self._schedule()

    def _proceed(self) -> None:
        """Call back the requests whose logs exist, in their order: records must not overtake each other."""
        waiting = self._waiting
        end = self._clock.monotonic() + SLICE_S
        while waiting:
            head = waiting[0].partitions
            while head and not self._is_due(head[-1]):
                head.pop()
            if head:
                return
            if self._clock.monotonic() >= end:
                self._schedule()
                return
            self._call_next()

    def _is_due(self, partition: Partition) -> bool:
        return partition in self._prioritized or partition in self._in_thread or partition in self._queue

    def _call_all(self) -> None:
        while self._waiting:
            self._call_next()

    def _call_next(self) -> None:
        head = self._waiting.popleft()
        self._bytes -= head.size
        try:
            head.proceed()
        except BaseException:
            self._schedule()
            raise


def run(work: list[Create]) -> None:
    """Run the work of one batch, in the thread."""
    for create in work:
        create()
