"""Limits the speed of a cleaning to the configured bytes per second, and yields to the event loop.

To get the interpreter back from a busy thread, the event loop waits for Python's switch interval (`ottla start` sets
it low). A thread that pauses every millisecond yields more often.
"""

from __future__ import annotations

import threading

from ottla.clock import Clock

_SLICE_S = 0.001
_PAUSE_S = 0.0001
_MIN_WAIT_S = 0.005


class CleaningAbortedError(Exception):
    """The cleaning was aborted: the broker stops, or the log was deleted or changed."""


class Throttler:
    """Called after each piece of work with its number of bytes."""

    __slots__ = ("_aborted", "_bytes", "_clock", "_rate", "_slice_end", "_started")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._aborted = threading.Event()
        self._bytes = 0
        self._started = self._slice_end = clock.monotonic()

    def abort(self) -> None:
        """Make the next call raise. Safe in any thread."""
        self._aborted.set()

    def __call__(self, byte_count: int) -> None:
        now = self._clock.monotonic()
        self._bytes += byte_count
        ahead = self._bytes / self._rate - (now - self._started)
        if ahead > _MIN_WAIT_S:
            self._aborted.wait(ahead)
        elif now >= self._slice_end:
            self._aborted.wait(_PAUSE_S)
            now = self._clock.monotonic()
            self._slice_end = now + _SLICE_S
        if self._aborted.is_set():
            raise CleaningAbortedError
