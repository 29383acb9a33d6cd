"""Numbers about the last minutes, from counters that only grow: what they were at earlier scrapes is remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

_WINDOW_S: Final = 60.0
_MAX_POINTS: Final = 64


class Rates:
    """Growth per second of any number of counters, over about a minute, or since the start."""

    __slots__ = ("_began", "_points")

    def __init__(self, now: float) -> None:
        self._began = now
        self._points: dict[Hashable, deque[tuple[float, float]]] = {}

    def per_s(self, key: Hashable, value: float, now: float) -> float:
        """The rate of the counter `key`, which is at `value` now."""
        points = self._points.get(key)
        if points is None:
            points = self._points[key] = deque([(self._began, 0.0)], maxlen=_MAX_POINTS)
        while len(points) > 1 and points[1][0] <= now - _WINDOW_S:
            points.popleft()
        at, before = points[0]
        if now - points[-1][0] >= 1.0:
            points.append((now, value))
        return (value - before) / (now - at) if now > at else 0.0


class RecentCounts:
    """The steps of a histogram that were counted in the last one to two minutes."""

    __slots__ = ("_at", "_before", "_earlier")

    def __init__(self, now: float) -> None:
        self._at = now
        self._before: list[int] | None = None
        self._earlier: list[int] | None = None

    def of(self, counts: list[int], now: float) -> list[int]:
        """What was added since the older of two marks; a new mark is made each minute."""
        if now - self._at >= _WINDOW_S:
            self._before, self._earlier, self._at = self._earlier, counts.copy(), now
        base = self._before
        if base is None:
            return counts.copy()
        recent = [count - earlier for count, earlier in zip(counts, base, strict=True)]
        return recent if any(recent) else counts.copy()
