"""Requests that wait for something to happen to a partition, and the batched wake-up when it does.

A parked request hangs on its partitions and has one timer. Events only mark it; marked requests run together on
the loop's next turn, so that one produce request over many partitions wakes a consumer once. What a woken request
does is its own business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from ottla.clock import Clock, Timer
from ottla.limits import MAX_PARKED_REQUESTS

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

_MAX_PER_TURN: Final = 256
"""Requests woken before the loop gets to do something else."""

Wake = Callable[[bool], int]
"""`wake(expired)`: 0 when the request is answered, else the bytes that it still waits for (at least 1)."""


class Waiter(Protocol):
    """Hangs on a partition and hears of what happens to it."""

    def progress(self, size: int) -> None:
        """So many bytes more can be read from one of its partitions."""

    def ready(self) -> None:
        """Something else happened: the high watermark moved, the leader changed, the partition is gone."""

    def expire(self) -> None:
        """The broker stops."""


class DelayedRequest:
    """A request that waits. `need` is how many more bytes would make it worth waking."""

    __slots__ = ("_queued", "_waiting", "at_end", "need", "partitions", "timer", "wake")

    def __init__(
        self, waiting: DelayedRequests, partitions: list[Partition], need: int, wake: Wake, at_end: bool
    ) -> None:
        self._waiting = waiting
        self._queued = False
        self.at_end = at_end
        self.partitions = partitions
        self.need = need
        self.wake: Wake | None = wake
        self.timer: Timer | None = None

    def progress(self, size: int) -> None:
        """So many bytes more can be read from one of its partitions."""
        self.need -= size
        if self.need <= 0:
            self.ready()

    def ready(self) -> None:
        """Wake it on the loop's next turn."""
        if not self._queued and self.wake is not None:
            self._queued = True
            self._waiting.enqueue(self)

    def cancel(self) -> None:
        """Drop it unanswered, because nobody waits for the answer any more."""
        if self.wake is not None:
            self.wake = None
            self._waiting.release(self)

    def expire(self) -> None:
        """Its time is up: answer it with what there is."""
        self.run(expired=True)

    def run(self, *, expired: bool) -> None:
        self._queued = False
        wake = self.wake
        if wake is None:
            return
        if expired:
            self.wake = None
            self._waiting.release(self)
            wake(True)
            return
        need = wake(False)
        if need > 0:
            self.need = need
        elif self.wake is not None:
            self.wake = None
            self._waiting.release(self)


class DelayedRequests:
    """All parked requests of the broker."""

    __slots__ = ("_clock", "_limit", "_ready", "_scheduled", "count")

    def __init__(self, clock: Clock, limit: int = MAX_PARKED_REQUESTS) -> None:
        self._clock = clock
        self._limit = limit
        self._ready: deque[DelayedRequest] = deque()
        self._scheduled = False
        self.count = 0
        """Requests that wait now."""

    def park(
        self,
        partitions: Iterable[Partition],
        need: int,
        timeout_s: float,
        wake: Wake,
        *,
        at_end: bool = False,
    ) -> DelayedRequest | None:
        """Hang a request on its partitions; None when too many wait already.

        It hears of what becomes readable; `at_end`, as a follower does, of everything that is appended.
        """
        if self.count >= self._limit:
            return None
        parked = DelayedRequest(self, list(partitions), need, wake, at_end)
        for partition in parked.partitions:
            (partition.tails if at_end else partition.waiters)[parked] = None
        parked.timer = self._clock.call_later(timeout_s, self._expire, parked)
        self.count += 1
        return parked

    def release(self, parked: DelayedRequest) -> None:
        self.count -= 1
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None
        for partition in parked.partitions:
            (partition.tails if parked.at_end else partition.waiters).pop(parked, None)

    def enqueue(self, parked: DelayedRequest) -> None:
        self._ready.append(parked)
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._flush)

    def _flush(self) -> None:
        ready = self._ready
        try:
            for _ in range(min(len(ready), _MAX_PER_TURN)):
                ready.popleft().run(expired=False)
        finally:
            self._scheduled = bool(ready)
            if ready:
                self._clock.call_later(0.0, self._flush)

    def _expire(self, parked: DelayedRequest) -> None:
        parked.timer = None
        parked.expire()

    def close(self) -> None:
        """From now on nobody may wait."""
        self._limit = 0
