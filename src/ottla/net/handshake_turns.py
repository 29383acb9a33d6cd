"""A share of each turn of the event loop for TLS handshakes, so that a flood of them leaves time for requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

STEPS_PER_TURN: Final = 8


class HandshakeTurns:
    """One event loop's. A step takes a fraction of a millisecond; what is over waits for the next turn."""

    __slots__ = ("_call_soon", "_scheduled", "_steps", "_waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._steps = 0
        self._scheduled = False
        self._waiting: deque[Callable[[], None]] = deque()

    def may_go_on(self, later: Callable[[], None]) -> bool:
        """True if a step may be made now; else `later` is called in a turn that has room for it."""
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._next_turn)
        if self._steps >= STEPS_PER_TURN:
            self._waiting.append(later)
            return False
        self._steps += 1
        return True

    def _next_turn(self) -> None:
        self._scheduled = False
        self._steps = 0
        for _ in range(min(STEPS_PER_TURN, len(self._waiting))):
            # Each of them asks again, and is counted then.
            self._waiting.popleft()()
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._next_turn)
