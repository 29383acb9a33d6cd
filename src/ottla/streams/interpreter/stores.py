"""State stores on a map: by key, by key and window, by key and session.

All windows of one key live in one entry, so that no store ever needs more of an engine than a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.streams.interpreter.keys import KeyCodec
from ottla.streams.interpreter.state_map import StateMap, own_copy
from ottla.streams.records import ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import Serde

NEVER = -1
"""The time before any record was seen."""


class KeyValueStore:
    """For processors: `get`, `put`, `delete`, `all`, `range`. A value of None deletes."""

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap, key_serde: Serde[Any] | None = None) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)

    def get(self, key: Any) -> Any:
        return own_copy(self._entries.get(self._keys.encode(key)))

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            self._entries.delete(self._keys.encode(key))
        else:
            self._entries.put(self._keys.encode(key), value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        held = self.get(key)
        if held is None:
            self.put(key, value)
        return held

    def delete(self, key: Any) -> Any:
        held = self.get(key)
        self._entries.delete(self._keys.encode(key))
        return held

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Everything, in the order of the keys' bytes."""
        for key, value in sorted(self._entries.items(), key=lambda entry: entry[0]):
            yield self._keys.decode(key), own_copy(value)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Both ends are included."""
        lowest, highest = self._keys.encode(first), self._keys.encode(last)
        for key, value in sorted(self._entries.items(), key=lambda entry: entry[0]):
            if lowest <= key <= highest:
                yield self._keys.decode(key), own_copy(value)

    def __len__(self) -> int:
        return sum(1 for _ in self._entries.items())


class TableStore:
    """A table's rows with the time of each."""

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap, key_serde: Serde[Any] | None = None) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        held = self._entries.get(self._keys.encode(key))
        return None if held is None else ValueAndTimestamp(own_copy(held[0]), held[1])

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        if value is None:
            self._entries.delete(self._keys.encode(key))
        else:
            self._entries.put(self._keys.encode(key), (value, timestamp))

    def all(self) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        for key, held in sorted(self._entries.items(), key=lambda entry: entry[0]):
            yield self._keys.decode(key), ValueAndTimestamp(own_copy(held[0]), held[1])


class WindowStore:
    """Values by key and window start; what is older than the retention, by the newest start seen, is gone."""

    scalars = ("newest", "purged")

    def __init__(
        self,
        entries: StateMap,
        key_serde: Serde[Any] | None,
        retention_ms: int,
        *,
        keep_duplicates: bool = False,
    ) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)
        self._retention_ms = retention_ms
        self._keep_duplicates = keep_duplicates
        self.newest = NEVER
        self.purged = NEVER

    def put(self, key: Any, value: Any, start: int, timestamp: int) -> None:
        if value is None and self._keep_duplicates:
            return
        if start > self.newest:
            self.newest = start
            self._purge()
        oldest = self.newest - self._retention_ms + 1
        if start < oldest:
            return
        name = self._keys.encode(key)
        held = self._entries.get(name) or {}
        windows = {begin: entry for begin, entry in held.items() if begin >= oldest}
        if self._keep_duplicates:
            windows[start] = (*windows.get(start, ()), ValueAndTimestamp(value, timestamp))
        elif value is None:
            windows.pop(start, None)
        else:
            windows[start] = ValueAndTimestamp(value, timestamp)
        if windows:
            self._entries.put(name, windows)
        else:
            self._entries.delete(name)

    def fetch(self, key: Any, start: int) -> ValueAndTimestamp | None:
        if start < self.newest - self._retention_ms + 1:
            return None
        windows = self._entries.get(self._keys.encode(key))
        held = None if windows is None else windows.get(start)
        return None if held is None else ValueAndTimestamp(own_copy(held[0]), held[1])

    def fetch_range(self, key: Any, first: int, last: int) -> list[tuple[int, ValueAndTimestamp]]:
        """Windows that begin between two times, both included, the earliest first."""
        windows = self._entries.get(self._keys.encode(key)) or {}
        oldest = max(first, self.newest - self._retention_ms + 1)
        found = sorted(begin for begin in windows if oldest <= begin <= last)
        if self._keep_duplicates:
            return [(begin, entry) for begin in found for entry in windows[begin]]
        return [(begin, ValueAndTimestamp(own_copy(windows[begin][0]), windows[begin][1])) for begin in found]

    def fetch_all(self, first: int, last: int) -> list[tuple[Any, int, ValueAndTimestamp]]:
        """Windows of all keys that begin between two times, both included."""
        oldest = max(first, self.newest - self._retention_ms + 1)
        found = [
            (begin, name, entry)
            for name, windows in self._entries.items()
            for begin, entry in windows.items()
            if oldest <= begin <= last
        ]
        found.sort(key=lambda entry: entry[:2])
        return [(self._keys.decode(name), begin, entry) for begin, name, entry in found]

    def all(self) -> list[tuple[Any, int, ValueAndTimestamp]]:
        return self.fetch_all(0, 1 << 62)

    def _purge(self) -> None:
        """Keys that are never seen again would stay forever: now and then all are looked through."""
        every = max(self._retention_ms, 60_000)
        if self.purged == NEVER:
            self.purged = self.newest
        if self.newest - self.purged < every:
            return
        self.purged = self.newest
        oldest = self.newest - self._retention_ms + 1
        for name, windows in self._entries.items():
            if all(begin < oldest for begin in windows):
                self._entries.delete(name)


class SessionStore:
    """Values by key and session; a session is gone when it ended longer ago than the retention."""

    scalars = ("newest", "purged")

    def __init__(
        self, entries: StateMap, key_serde: Serde[Any] | None, retention_ms: int, kept_longer_ms: int = 0
    ) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)
        self._retention_ms = retention_ms
        self._kept_longer_ms = kept_longer_ms
        self.newest = NEVER
        self.purged = NEVER

    @property
    def _oldest(self) -> int:
        return self.newest - self._retention_ms + 1

    def find(self, key: Any, earliest_end: int, latest_start: int) -> list[tuple[Window, Any]]:
        sessions = self._entries.get(self._keys.encode(key)) or {}
        lowest = max(earliest_end, self._oldest)
        found = [(end, start) for start, end in sessions if end >= lowest and start <= latest_start]
        return [(Window(start, end), own_copy(sessions[start, end])) for end, start in sorted(found)]

    def fetch(self, key: Any, window: Window) -> Any:
        sessions = self._entries.get(self._keys.encode(key)) or {}
        return own_copy(sessions.get((window.start, window.end)))

    def put(self, key: Any, window: Window, value: Any) -> None:
        if window.end > self.newest:
            self.newest = window.end
            self._purge()
        name = self._keys.encode(key)
        sessions = self._live(self._entries.get(name) or {})
        if value is None:
            sessions.pop((window.start, window.end), None)
        elif window.end >= self._oldest - self._kept_longer_ms:
            sessions[window.start, window.end] = value
        if sessions:
            self._entries.put(name, sessions)
        else:
            self._entries.delete(name)

    def remove(self, key: Any, window: Window) -> None:
        self.put(key, window, None)

    def find_ended(self, first: int, last: int) -> list[tuple[Windowed, Any]]:
        """Sessions of all keys that ended between two times, both included."""
        lowest = max(first, self._oldest - self._kept_longer_ms)
        found = [
            (end, start, name, value)
            for name, sessions in self._entries.items()
            for (start, end), value in sessions.items()
            if lowest <= end <= last
        ]
        found.sort(key=lambda entry: entry[:3])
        return [
            (Windowed(self._keys.decode(name), Window(start, end)), value)
            for end, start, name, value in found
        ]

    def all(self) -> list[tuple[Windowed, Any]]:
        return self.find_ended(0, 1 << 62)

    def _live(self, sessions: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
        oldest = self._oldest - self._kept_longer_ms
        return {window: value for window, value in sessions.items() if window[1] >= oldest}

    def _purge(self) -> None:
        every = max(self._retention_ms, 60_000)
        if self.purged == NEVER:
            self.purged = self.newest
        if self.newest - self.purged < every:
            return
        self.purged = self.newest
        for name, sessions in self._entries.items():
            if not self._live(sessions):
                self._entries.delete(name)
