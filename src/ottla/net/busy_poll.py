"""Stays awake for a client that asks, waits for its answer, and asks again.

A thread that sleeps until the next request comes is woken late: some fifty microseconds on an idle core, as long as a
small request takes. While one client keeps asking at a pace at which that matters, the loop looks for its next
request instead of sleeping. It lets everyone else who wants the core go first, and it goes to sleep as usual when
the pace drops, when another client asks too (then the loop hardly sleeps anyway), or when there is one core only.
"""

from __future__ import annotations

import os
from collections.abc import Callable

BUSY_POLL = "OTTLA_BUSY_POLL"
"""The environment variable that turns it off when it is `off`."""

_SLOW_S = 0.001
_QUICK_S = 0.0004
"""Below this time from one request to the next, on average, being woken late costs more than staying awake."""
_SMOOTHING = 1 / 16
_LOOK_S = 0.00025
_MAX_LOOKS = 500
"""For how long, and how often at most, it looks for the next request."""
_MIN_CORES = 2


class BusyPoller:
    """Told of every small read with which requests begin; keeps the loop awake where that pays."""

    __slots__ = (
        "_awake",
        "_call_soon",
        "_client",
        "_last",
        "_looks",
        "_monotonic",
        "_pace",
        "_until",
        "_yield",
    )

    def __init__(
        self,
        monotonic: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        let_others_run: Callable[[], None],
    ) -> None:
        self._monotonic = monotonic
        self._call_soon = call_soon
        self._yield = let_others_run
        self._client: object = None
        self._last = 0.0
        self._pace = _SLOW_S
        self._until = 0.0
        self._looks = 0
        self._awake = False

    def asked(self, client: object, now: float) -> None:
        """A request of this client was read at `now`."""
        took = now - self._last
        self._last = now
        if client is not self._client:
            self._client = client
            took = _SLOW_S
        elif took > _SLOW_S:
            took = _SLOW_S
        self._pace += (took - self._pace) * _SMOOTHING
        if self._pace < _QUICK_S:
            self._until = now + _LOOK_S
            self._looks = _MAX_LOOKS
            if not self._awake:
                self._awake = True
                self._call_soon(self._look)

    def _look(self) -> None:
        """One turn of the loop: it asks the system for events without waiting, because this is to be called again."""
        self._looks -= 1
        if self._looks > 0 and self._monotonic() < self._until:
            self._yield()
            self._call_soon(self._look)
        else:
            self._awake = False


def busy_poll(
    monotonic: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
) -> BusyPoller | None:
    """One for this machine, or None where it would not help or is not wanted."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < _MIN_CORES or not hasattr(os, "sched_yield") or os.environ.get(BUSY_POLL, "") == "off":
        return None
    return BusyPoller(monotonic, call_soon, os.sched_yield)
