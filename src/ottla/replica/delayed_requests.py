"""Requests that wait for an event at their partitions (Kafka's purgatory), and their batched wake-up.

A delayed request registers with its partitions and has one timer. Events only mark it. Marked requests run together
on the loop's next turn, so that one Produce request over many partitions wakes a consumer once. What a request does
when it is woken is its own business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ottla.clock import Clock, Timer
from ottla.limits import MAX_PARKED_REQUESTS

_MAX_PER_TURN: Final = 256
"""Requests that one turn of the loop wakes; the rest wait for the next turn."""

Wake = Callable[[bool], int]
"""`wake(expired)` returns 0 when the request is answered, else the bytes that it still waits for (at least 1)."""


class PartitionWaiter(Protocol):
    """Is registered with a partition and notified of its events."""

    def progress(self, size: int) -> None:
        """`size` more bytes can be read from the partition."""

    def ready(self) -> None:
        """Another event: the high watermark moved, the leader changed, or the partition was removed."""

    def expire(self) -> None:
        """The broker stops: respond with what is there."""


Waiters = dict[PartitionWaiter, None]
"""An ordered set of waiters, as partitions keep it."""


class DelayedRequest:
    """A request that waits. `need` is how many more bytes make it worth waking."""

    __slots__ = ("_owner", "_queued", "need", "registered_in", "timer", "wake")

    def __init__(self, owner: DelayedRequests, registered_in: list[Waiters], need: int, wake: Wake) -> None:
        self._owner = owner
        self._queued = False
        self.registered_in = registered_in
        self.need = need
        self.wake: Wake | None = wake
        self.timer: Timer | None = None

    def progress(self, size: int) -> None:
        """`size` more bytes can be read from one of its partitions."""
        self.need -= size
        if self.need <= 0:
            self.ready()

    def ready(self) -> None:
        """Wake it on the loop's next turn."""
        if not self._queued and self.wake is not None:
            self._queued = True
            self._owner.enqueue(self)

    def cancel(self) -> None:
        """Drop it without a response, because the client is gone."""
        if self.wake is not None:
            self.wake = None
            self._owner.release(self)

    def expire(self) -> None:
        """Its time is up: respond with what is there."""
        self.run(expired=True)

    def run(self, *, expired: bool) -> None:
        """Wake it now."""
        self._queued = False
        wake = self.wake
        if wake is None:
            return
        if expired:
            self.wake = None
            self._owner.release(self)
            wake(True)
            return
        need = wake(False)
        if need > 0:
            self.need = need
        elif self.wake is not None:
            self.wake = None
            self._owner.release(self)


class DelayedRequests:
    """All delayed requests of the broker."""

    __slots__ = ("_clock", "_limit", "_ready", "_scheduled", "count")

    def __init__(self, clock: Clock, limit: int = MAX_PARKED_REQUESTS) -> None:
        self._clock = clock
        self._limit = limit
        self._ready: deque[DelayedRequest] = deque()
        self._scheduled = False
        self.count = 0
        """Requests that wait now."""

    def park(
        self, partitions: Iterable[Waiters], need: int, timeout_s: float, wake: Wake
    ) -> DelayedRequest | None:
        """Register a request with its partitions' waiters; None if too many requests wait already."""
        if self.count >= self._limit:
            return None
        parked = DelayedRequest(self, list(partitions), need, wake)
        for waiters in parked.registered_in:
            waiters[parked] = None
        parked.timer = self._clock.call_later(timeout_s, self._expire, parked)
        self.count += 1
        return parked

    def release(self, parked: DelayedRequest) -> None:
        """Take a request off its partitions and stop its timer."""
        self.count -= 1
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None
        for waiters in parked.registered_in:
            waiters.pop(parked, None)

    def enqueue(self, parked: DelayedRequest) -> None:
        """Wake a request with the next batch."""
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
        """Accept no more requests: the broker stops."""
        self._limit = 0
