"""Spark's state as the maps under our stores: read once per batch and key, written back at the batch's end."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

KEPT_ENTRIES: Final = 200_000
"""How much of a task's state a Python worker remembers between batches."""


class SparkMap:
    """A MapState with what this batch has read and changed on top of it."""

    __slots__ = ("_changed", "_known", "_state")

    def __init__(self, state: Any, known: dict[bytes, Any]) -> None:
        self._state = state
        self._known = known
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> Any:
        try:
            return self._known[key]
        except KeyError:
            held = self._state.getValue((key,))
            value = None if held is None else pickle.loads(held[0])
            self._known[key] = value
            return value

    def put(self, key: bytes, value: Any) -> None:
        self._known[key] = value
        self._changed.add(key)

    def delete(self, key: bytes) -> None:
        self._known[key] = None
        self._changed.add(key)

    def items(self) -> Iterator[tuple[bytes, Any]]:
        found = {bytes(key[0]): held[0] for key, held in self._state.iterator()}
        for key, held in found.items():
            if key not in self._known:
                yield key, pickle.loads(held)
        for key, value in list(self._known.items()):
            if value is not None:
                yield key, value

    def write_back(self) -> None:
        for key in self._changed:
            value = self._known[key]
            if value is None:
                self._state.removeKey((key,))
            else:
                self._state.updateValue((key,), (pickle.dumps(value, 5),))
        self._changed.clear()


_remembered: dict[tuple[str, int, int], tuple[bytes, dict[str, dict[bytes, Any]]]] = {}


def recall(run: str, stage: int, group: int, token: bytes | None) -> dict[str, dict[bytes, Any]]:
    """What this worker remembers of a task's state, if the token says that nobody has changed it since."""
    held = _remembered.pop((run, stage, group), None)
    return held[1] if held is not None and held[0] == token else {}


def remember(run: str, stage: int, group: int, token: bytes, known: dict[str, dict[bytes, Any]]) -> None:
    if sum(map(len, known.values())) <= KEPT_ENTRIES:
        _remembered[run, stage, group] = (token, known)
