"""Closes idle connections: one periodic check of all of them, no timer per connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.net.connection import Connection

_logger = logging.getLogger(__name__)

_LONGEST_INTERVAL_S = 15.0
_SHORTEST_INTERVAL_S = 0.05


class IdleReaper:
    """Checks each connection every tenth of the allowed idle time (at least every 15 s)."""

    __slots__ = ("_clock", "_connections", "_max_idle_s", "_timer")

    def __init__(
        self, clock: Clock, max_idle_ms: int, connections: Callable[[], Iterable[Connection]]
    ) -> None:
        self._clock = clock
        self._max_idle_s = max_idle_ms / 1000
        self._connections = connections
        self._timer: Timer | None = None

    def start(self) -> None:
        """Start to check. With a negative idle time connections are never closed."""
        self.stop()
        if self._max_idle_s >= 0:
            interval = min(max(self._max_idle_s / 10, _SHORTEST_INTERVAL_S), _LONGEST_INTERVAL_S)
            self._timer = self._clock.call_later(interval, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        oldest = self._clock.monotonic() - self._max_idle_s
        for connection in list(self._connections()):
            if connection.last_active > oldest:
                continue
            # A client that waits for a response is not idle. One that does not read its responses is, and a close
            # would never complete.
            if connection.write_paused or connection.closing:
                _logger.info("Closing %s: it does not read its responses", connection.client.connection_id)
                connection.abort()
            elif connection.pending == 0 and not connection.muted:
                _logger.debug("Closing idle connection %s", connection.client.connection_id)
                connection.close()
        self.start()
