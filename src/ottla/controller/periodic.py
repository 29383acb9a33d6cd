"""Periodic tasks of the active controller, besides the watch of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

_SOON_S: Final = 0.01
"""The delay before the next run of a task that has more to do."""

Task = Callable[[], bool]
"""Does a bounded amount of work. Returns whether there is more to do now."""


class PeriodicTasks:
    """Tasks that run at their interval while the controller is active."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[str, Timer] = {}

    def start(self, name: str, interval_s: float, task: Task) -> None:
        """Run the task every interval from now on. A task of that name that runs already is not changed."""
        if name not in self._timers and interval_s > 0:
            self._schedule(name, interval_s, interval_s, task)

    def stop_all(self) -> None:
        timers, self._timers = self._timers, {}
        for timer in timers.values():
            timer.cancel()

    def _schedule(self, name: str, delay_s: float, interval_s: float, task: Task) -> None:
        self._timers[name] = self._clock.call_later(delay_s, self._run, name, interval_s, task)

    def _run(self, name: str, interval_s: float, task: Task) -> None:
        # Schedule first: the task may find that this node does not lead any more, and stop all tasks.
        self._schedule(name, interval_s, interval_s, task)
        if task() and name in self._timers:
            self._timers[name].cancel()
            self._schedule(name, _SOON_S, interval_s, task)
