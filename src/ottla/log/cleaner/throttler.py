"""How fast a cleaning may go: the configured bytes per second, and often enough a moment for the event loop.

Whenever the event loop wants the interpreter back from a thread that computes, it waits for Python's switch interval
(set low by `ottla start`); one that pauses every millisecond lets it go first more often.
"""

from __future__ import annotations

import threading

from ottla.clock import Clock

_SLICE_S = 0.001
_PAUSE_S = 0.0001
_MIN_WAIT_S = 0.005


class CleaningAbortedError(Exception):
    """The cleaning was called off: the broker stops, or the log goes away or changes."""


class Throttler:
    """Called after each bit of work with the bytes it took."""

    __slots__ = ("_aborted", "_bytes", "_clock", "_rate", "_slice_end", "_started")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._aborted = threading.Event()
        self._bytes = 0
        self._started = self._slice_end = clock.monotonic()

    def abort(self) -> None:
        """Make the next call raise; from any thread."""
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
