"""Busy polling for a client that sends a request, waits for the response, and sends the next request.

A thread that sleeps until the next request arrives is woken late: by about fifty microseconds on an idle core, as long
as a small request takes. While one client sends requests so fast that this matters, the loop polls for its next request
instead of sleeping. It yields the core to other threads first. It sleeps as usual when the client slows down, when
another client is active too (the loop hardly sleeps then), or on a machine with one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable

BUSY_POLL = "OTTLA_BUSY_POLL"
"""The environment variable that turns busy polling off if it is `off`."""

_SLOW_S = 0.001
_QUICK_S = 0.0004
"""Below this mean time between requests, a late wake-up costs more than polling."""
_SMOOTHING = 1 / 16
_LOOK_S = 0.00025
_MAX_LOOKS = 500
"""How long, and at most how often, the loop polls for the next request."""
_MIN_CORES = 2


class BusyPoller:
    """Watches the small reads with which requests begin, and polls while that saves time."""

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
        """One turn of the loop: it polls for events without waiting, because this callback is scheduled again."""
        self._looks -= 1
        if self._looks > 0 and self._monotonic() < self._until:
            self._yield()
            self._call_soon(self._look)
        else:
            self._awake = False


def busy_poll(
    monotonic: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
) -> BusyPoller | None:
    """A poller, or None if it would not help on this machine or is turned off."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < _MIN_CORES or not hasattr(os, "sched_yield") or os.environ.get(BUSY_POLL, "") == "off":
        return None
    return BusyPoller(monotonic, call_soon, os.sched_yield)
