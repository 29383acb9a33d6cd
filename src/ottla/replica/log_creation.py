"""New partitions get their logs in a thread, a few at a time; requests that need them wait here, in their order.

A log is a directory and some files: most of a millisecond on a disk that has nothing else to do, and much more beside
others. Who cannot wait takes a log at once (`Partition.local_log`), also one that the thread has not come to yet.
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
    from ottla.replica.offload import Offload
    from ottla.replica.partition import Partition

SLICE_S: Final = 0.003
"""How long the waiting requests may hold the loop at a time, but for the last of them."""

_AT_ONCE: Final = 32
"""Logs that the thread is given at a time: whoever wants others before them has to wait for so many."""

Make = Callable[[], object]
Begin = Callable[["Partition", bool], "Make | None"]
"""What a thread has to do for a partition's log, or, if so asked, for records to be appended to it."""


class _Waiting(NamedTuple):
    partitions: list[Partition]
    go_on: Callable[[], None]
    size: int


class LogCreator:
    """The partitions that are to get their logs, and who waits for them. Owned by the replica manager."""

    __slots__ = (
        "_begin",
        "_bytes",
        "_clock",
        "_making",
        "_offload",
        "_opened",
        "_prioritized",
        "_queue",
        "_scheduled",
        "_stopped",
        "_waiting",
    )

    def __init__(
        self, clock: Clock, offload: Offload, begin: Begin, opened: Callable[[Partition], None]
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._begin = begin
        self._opened = opened
        self._queue: dict[Partition, None] = {}
        self._prioritized: dict[Partition, None] = {}
        """Those that records wait for."""
        self._making: dict[Partition, None] = {}
        """Those that the thread has now."""
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._scheduled = False
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether logs are being made, or somebody still waits for their turn."""
        return bool(self._queue or self._prioritized or self._making or self._waiting)

    def add(self, partition: Partition) -> None:
        """A partition needs its log, some time soon."""
        self._queue[partition] = None
        self._schedule()

    def discard(self, partition: Partition) -> None:
        """The partition is gone."""
        self._queue.pop(partition, None)
        self._prioritized.pop(partition, None)

    def prioritize(self, partitions: list[Partition], size: int, go_on: Callable[[], None]) -> None:
        """Make these before others, fit for records, then call back; after all who called before.

        With more bytes waiting than may, it and they are called at once.
        """
        for partition in partitions:
            self._queue.pop(partition, None)
            self._prioritized[partition] = None
        self._waiting.append(_Waiting(partitions, go_on, size))
        self._bytes += size
        if self._stopped or self._bytes > MAX_BYTES_WAITING_FOR_LOGS:
            self._call_all()
        else:
            self._schedule()

    def after_all(self, go_on: Callable[[], None]) -> None:
        """Call back when the logs that are to be made now have been."""
        self._waiting.append(_Waiting([*self._making, *self._prioritized, *self._queue], go_on, 0))
        self._schedule()

    def stop(self) -> None:
        """Give nothing more to the thread. Who waits makes what is missing alone, or hears why not."""
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
        if not self._making:
            self._make_next()
        self._go_on()

    def _make_next(self) -> None:
        """Give the next few to the thread, those first that records wait for."""
        end = self._clock.monotonic() + SLICE_S
        work: list[Make] = []
        while (queue := self._prioritized or self._queue) and len(work) < _AT_ONCE:
            partition = next(iter(queue))
            del queue[partition]
            make = self._begin(partition, queue is self._prioritized)
            if make is not None:
                work.append(make)
                self._making[partition] = None
            if self._clock.monotonic() >= end:
                break
        if work:
            self._offload.run(partial(run, work), self._made)
        elif queue:
            self._schedule()

    def _made(self, future: Future[None]) -> None:
        outcome(future)  # says what went wrong; the logs themselves tell those who need them
        made, self._making = self._making, {}
        if self._stopped:
            return
        for partition in made:
            self._opened(partition)
        self._schedule()

    def _go_on(self) -> None:
        """Call back who has waited long enough, in their order: records must not overtake each other."""
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
        return partition in self._prioritized or partition in self._making or partition in self._queue

    def _call_all(self) -> None:
        while self._waiting:
            self._call_next()

    def _call_next(self) -> None:
        head = self._waiting.popleft()
        self._bytes -= head.size
        try:
            head.go_on()
        except BaseException:
            self._schedule()
            raise


def run(work: list[Make]) -> None:
    """What the thread does."""
    for make in work:
        make()
