"""Numbers of the recent past: a ring of equal steps of time, in which a missing step has the value before it."""

from __future__ import annotations

from array import array
from typing import Final

STEP_S: Final = 2.0
STEPS: Final = 300
"""Ten minutes."""
LONG_STEP_S: Final = 300.0
LONG_STEPS: Final = 288
"""A day."""


class Ring:
    """Values by time. Reading gives the steps in order, oldest first."""

    __slots__ = ("_filled", "_last", "_step_s", "_values")

    def __init__(self, step_s: float = STEP_S, steps: int = STEPS) -> None:
        self._step_s = step_s
        self._values = array("f", bytes(4 * steps))
        self._last: int | None = None
        self._filled = 0

    def put(self, moment_s: float, value: float) -> None:
        """Set the value of a moment's step, and of the steps since the last value."""
        step = int(moment_s // self._step_s)
        size = len(self._values)
        if self._last is None:
            self._last = step - 1
        if step < self._last:
            return
        for missing in range(max(self._last + 1, step - size + 1), step + 1):
            self._values[missing % size] = value
        self._values[step % size] = value
        self._filled = min(size, self._filled + step - self._last)
        self._last = step

    def values(self, count: int | None = None) -> list[float]:
        """The newest `count` values, or all; fewer while the ring fills."""
        if self._last is None:
            return []
        size = len(self._values)
        wanted = min(self._filled, count or size)
        first = (self._last - wanted + 1) % size
        found = self._values[first : first + wanted].tolist()
        return found + self._values[: wanted - len(found)].tolist()

    @property
    def newest_s(self) -> float:
        """When the newest step began."""
        return 0.0 if self._last is None else self._last * self._step_s


class History:
    """A number's last ten minutes and last day."""

    __slots__ = ("day", "recent")

    def __init__(self) -> None:
        self.recent = Ring()
        self.day: Ring | None = None

    def put(self, moment_s: float, value: float) -> None:
        self.recent.put(moment_s, value)
        if self.day is None:
            self.day = Ring(LONG_STEP_S, LONG_STEPS)
        self.day.put(moment_s, value)
