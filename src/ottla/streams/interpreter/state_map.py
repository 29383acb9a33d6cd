"""Maps under the stores. In tests they are dictionaries; on Spark they are Spark's own state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final, Generic, Protocol

from ottla.streams.records import Window, Windowed
from ottla.streams.type_variables import V

_UNCHANGEABLE: Final = (str, bytes, int, float, bool, type(None), Windowed, Window)


class StateMap(Protocol[V]):
    """Bytes to values: all that a store needs of an engine."""

    def get(self, key: bytes) -> V | None:
        """The value of a key, or None."""

    def put(self, key: bytes, value: V) -> None:
        """Sets the value of a key."""

    def delete(self, key: bytes) -> None:
        """Removes a key, if it is there."""

    def items(self) -> Iterator[tuple[bytes, V]]:
        """All keys and values, in any order; the caller may change the map meanwhile."""


class MemoryMap(Generic[V]):
    """A StateMap in memory."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes, V] = {}

    def get(self, key: bytes) -> V | None:
        """The value of a key, or None."""
        return self._entries.get(key)

    def put(self, key: bytes, value: V) -> None:
        """Sets the value of a key."""
        self._entries[key] = value

    def delete(self, key: bytes) -> None:
        """Removes a key, if it is there."""
        self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[bytes, V]]:
        """All keys and values at this moment."""
        return iter(list(self._entries.items()))


def own_copy(value: V) -> V:
    """A value that its reader may change without a change of what the store holds."""
    return value if isinstance(value, _UNCHANGEABLE) else copy.deepcopy(value)
