"""Timers of a shard: each has a key and runs a write operation when it is due."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from ottla.clock import Clock, Timer
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException

TimerOperation = Callable[[int], CoordinatorResult[Any]]
"""`(now_ms) -> result`: a write operation bound to its shard. Its response is dropped."""

RETRY_BACKOFF_MS: Final = 500
"""An operation that cannot be written is retried after this time, unless its key was rescheduled meanwhile."""

Submit = Callable[[TimerOperation, Callable[[], bool], Callable[[ApiException], None]], None]
"""`submit(operation, still_wanted, failed)`: run the operation as a write of the shard."""


class Timers:
    """The timers of one shard, by key (any hashable: `("session", group_id, member_id)`)."""

    __slots__ = ("_clock", "_submit", "_timers")

    def __init__(self, clock: Clock, submit: Submit) -> None:
        self._clock = clock
        self._submit = submit
        self._timers: dict[Hashable, _Scheduled] = {}

    def schedule(
        self, key: Hashable, delay_ms: int, operation: TimerOperation, *, retry: bool = True
    ) -> None:
        """Run `operation` after the delay, in place of the key's earlier operation."""
        self.cancel(key)
        scheduled = _Scheduled(operation, retry)
        self._timers[key] = scheduled
        scheduled.timer = self._clock.call_later(max(delay_ms, 0) / 1000, self._due, key, scheduled)

    def schedule_if_absent(self, key: Hashable, delay_ms: int, operation: TimerOperation) -> None:
        """As `schedule`, unless the key is scheduled already."""
        if key not in self._timers:
            self.schedule(key, delay_ms, operation)

    def cancel(self, key: Hashable) -> None:
        """Drop the key's operation, if there is one."""
        scheduled = self._timers.pop(key, None)
        if scheduled is not None and scheduled.timer is not None:
            scheduled.timer.cancel()

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._timers

    def cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel(key)

    def __len__(self) -> int:
        return len(self._timers)

    def _due(self, key: Hashable, scheduled: _Scheduled) -> None:
        scheduled.timer = None

        def still_wanted() -> bool:
            # It may have been replaced or cancelled while it waited for its turn. It is removed just before it
            # runs, so that it may schedule itself again.
            if self._timers.get(key) is not scheduled:
                return False
            del self._timers[key]
            return True

        def failed(error: ApiException) -> None:
            if scheduled.retry and error.code.retriable and key not in self._timers:
                self.schedule(key, RETRY_BACKOFF_MS, scheduled.operation)

        self._submit(scheduled.operation, still_wanted, failed)


class _Scheduled:
    __slots__ = ("operation", "retry", "timer")

    def __init__(self, operation: TimerOperation, retry: bool) -> None:
        self.operation = operation
        self.retry = retry
        self.timer: Timer | None = None
