"""State stores on a map: by key, by key and window, by key and session.

All windows of one key are one entry, so that a store needs no more of an engine than a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from ottla.streams.interpreter.keys import KeyCodec
from ottla.streams.interpreter.state_map import StateMap, own_copy
from ottla.streams.records import ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import AnySerde
from ottla.streams.type_variables import K, Unknown, V

NEVER = -1
"""The time before any record was seen."""


class KeyValueStore(Generic[K, V]):
    """A store by key for processors: `get`, `put`, `delete`, `all`, `range`. A value of None deletes.

    >>> class Last(Processor):
    ...     def process(self, record):
    ...         self.context.store("last").put(record.key, record.value)
    >>> builder = StreamsBuilder().add_state_store("last")
    >>> _ = builder.stream("in").process(Last, stores=["last"])
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_input("in", "hello", key="a")
    >>> list(driver.store("last").all())
    [('a', 'hello')]
    """

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap[V], key_serde: AnySerde | None = None) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)

    def get(self, key: K) -> V | None:
        """The value of a key, or None.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> store.get("a")
        1
        """
        return own_copy(self._entries.get(self._keys.encode(key)))

    def put(self, key: K, value: V | None) -> None:
        """Sets the value of a key; None deletes it.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> len(store)
        1
        """
        if value is None:
            self._entries.delete(self._keys.encode(key))
        else:
            self._entries.put(self._keys.encode(key), value)

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Sets the value of a key that has none; returns the value that was there.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> store.put_if_absent("a", 2)
        1
        """
        held = self.get(key)
        if held is None:
            self.put(key, value)
        return held

    def delete(self, key: K) -> V | None:
        """Removes a key; returns the value that was there.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> store.delete("a")
        1
        """
        held = self.get(key)
        self._entries.delete(self._keys.encode(key))
        return held

    def all(self) -> Iterator[tuple[K, V]]:
        """All keys and values, in the order of the keys' bytes.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> list(store.all())
        [('a', 1)]
        """
        for key, value in sorted(self._entries.items(), key=lambda entry: entry[0]):
            yield self._keys.decode(key), own_copy(value)

    def range(self, first: K, last: K) -> Iterator[tuple[K, V]]:
        """The keys between two, both included, by their bytes.

        >>> from ottla.streams.interpreter.state_map import MemoryMap
        >>> store = KeyValueStore(MemoryMap())
        >>> store.put("a", 1)
        >>> list(store.range("a", "c"))
        [('a', 1)]
        """
        lowest, highest = self._keys.encode(first), self._keys.encode(last)
        for key, value in sorted(self._entries.items(), key=lambda entry: entry[0]):
            if lowest <= key <= highest:
                yield self._keys.decode(key), own_copy(value)

    def __len__(self) -> int:
        return sum(1 for _ in self._entries.items())


class TableStore(Generic[K, V]):
    """The rows of a table, each with its time."""

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap[tuple[V, int]], key_serde: AnySerde | None = None) -> None:
        self._entries = entries
        self._keys = KeyCodec(key_serde)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """The row of a key, or None."""
        held = self._entries.get(self._keys.encode(key))
        return None if held is None else ValueAndTimestamp(own_copy(held[0]), held[1])

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Sets the row of a key; None deletes it."""
        if value is None:
            self._entries.delete(self._keys.encode(key))
        else:
            self._entries.put(self._keys.encode(key), (value, timestamp))

    def all(self) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        """All rows, in the order of the keys' bytes."""
        for key, held in sorted(self._entries.items(), key=lambda entry: entry[0]):
            yield self._keys.decode(key), ValueAndTimestamp(own_copy(held[0]), held[1])


class WindowStore(Generic[K, V]):
    """Values by key and window start. An entry goes when it is older than the retention, by the newest start seen."""

    scalars = ("newest", "purged")

    def __init__(
        self,
        entries: StateMap[dict[int, Unknown]],
        key_serde: AnySerde | None,
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

    def put(self, key: K, value: V | None, start: int, timestamp: int) -> None:
        """Sets the value of a window, or adds one where duplicates are kept; a window that is too old is dropped."""
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

    def fetch(self, key: K, start: int) -> ValueAndTimestamp[V] | None:
        """The value of a window, or None."""
        if start < self.newest - self._retention_ms + 1:
            return None
        windows = self._entries.get(self._keys.encode(key))
        held = None if windows is None else windows.get(start)
        return None if held is None else ValueAndTimestamp(own_copy(held[0]), held[1])

    def fetch_range(self, key: K, first: int, last: int) -> list[tuple[int, ValueAndTimestamp[V]]]:
        """Windows that begin between two times, both included, the earliest first."""
        windows = self._entries.get(self._keys.encode(key)) or {}
        oldest = max(first, self.newest - self._retention_ms + 1)
        found = sorted(begin for begin in windows if oldest <= begin <= last)
        if self._keep_duplicates:
            return [(begin, entry) for begin in found for entry in windows[begin]]
        return [(begin, ValueAndTimestamp(own_copy(windows[begin][0]), windows[begin][1])) for begin in found]

    def fetch_all(self, first: int, last: int) -> list[tuple[K, int, ValueAndTimestamp[V]]]:
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

    def all(self) -> list[tuple[K, int, ValueAndTimestamp[V]]]:
        """All windows of all keys."""
        return self.fetch_all(0, 1 << 62)

    def _purge(self) -> None:
        """Removes keys that get no more records: every retention, at least every minute, it looks at all."""
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


class SessionStore(Generic[K, V]):
    """Values by key and session; a session goes when it ended longer ago than the retention."""

    scalars = ("newest", "purged")

    def __init__(
        self,
        entries: StateMap[dict[tuple[int, int], V]],
        key_serde: AnySerde | None,
        retention_ms: int,
        kept_longer_ms: int = 0,
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

    def find(self, key: K, earliest_end: int, latest_start: int) -> list[tuple[Window, V]]:
        """The sessions of a key that a record between two times touches, the earliest end first."""
        sessions = self._entries.get(self._keys.encode(key)) or {}
        lowest = max(earliest_end, self._oldest)
        found = [(end, start) for start, end in sessions if end >= lowest and start <= latest_start]
        return [(Window(start, end), own_copy(sessions[start, end])) for end, start in sorted(found)]

    def fetch(self, key: K, window: Window) -> V | None:
        """The value of a session, or None."""
        sessions = self._entries.get(self._keys.encode(key)) or {}
        return own_copy(sessions.get((window.start, window.end)))

    def put(self, key: K, window: Window, value: V | None) -> None:
        """Sets the value of a session; None deletes it."""
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

    def remove(self, key: K, window: Window) -> None:
        """Deletes a session."""
        self.put(key, window, None)

    def find_ended(self, first: int, last: int) -> list[tuple[Windowed[K], V]]:
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

    def all(self) -> list[tuple[Windowed[K], V]]:
        """All sessions of all keys."""
        return self.find_ended(0, 1 << 62)

    def _live(self, sessions: dict[tuple[int, int], V]) -> dict[tuple[int, int], V]:
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
