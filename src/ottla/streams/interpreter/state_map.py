"""Maps under the stores. In tests they are dictionaries; on Spark they are Spark's own state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final, Protocol

from ottla.streams.records import Window, Windowed

_UNCHANGEABLE: Final = (str, bytes, int, float, bool, type(None), Windowed, Window)


class StateMap(Protocol):
    """Bytes to any value. Nothing more is asked of an engine."""

    def get(self, key: bytes) -> Any: ...

    def put(self, key: bytes, value: Any) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def items(self) -> Iterator[tuple[bytes, Any]]: ...


class MemoryMap:
    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes, Any] = {}

    def get(self, key: bytes) -> Any:
        return self._entries.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self._entries[key] = value

    def delete(self, key: bytes) -> None:
        self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[bytes, Any]]:
        return iter(list(self._entries.items()))


def own_copy(value: Any) -> Any:
    """A value that its reader may change without changing what the store holds."""
    return value if isinstance(value, _UNCHANGEABLE) else copy.deepcopy(value)
