"""Creations of internal topics that are requested repeatedly: each runs once, and not right after a failure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_FAILURES: Final = 1000
"""The number of remembered failures; the oldest are dropped first."""


class InternalTopicCreations:
    """The results of a broker's requests to create internal topics of streams groups."""

    __slots__ = ("_failures", "_in_flight")

    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._failures: dict[str, tuple[str, int]] = {}

    def begin(self, names: Iterable[str], now_ms: int) -> list[str]:
        """The topics to create now. The others are being created, or have failed recently."""
        begun = [
            name for name in names if name not in self._in_flight and self._failure(name, now_ms) is None
        ]
        self._in_flight.update(begun)
        return begun

    def end(self, names: Iterable[str]) -> None:
        """The controller has answered for these topics."""
        self._in_flight.difference_update(names)

    def failed(self, name: str, why: str, until_ms: int) -> None:
        """Record a failure: the topic is not tried again before this time."""
        self._failures.pop(name, None)
        self._failures[name] = (why, until_ms)
        while len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    def failures(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """The last error of each topic that could not be created."""
        found = {name: self._failure(name, now_ms) for name in names}
        return {name: why for name, why in found.items() if why is not None}

    def _failure(self, name: str, now_ms: int) -> str | None:
        why, until_ms = self._failures.get(name, (None, 0))
        if until_ms <= now_ms:
            self._failures.pop(name, None)
            return None
        return why
