"""What flows through a topology: records, changes of tables, and keys with the window they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers as Kafka keeps them: in order, names may repeat."""


class Record:
    """A record on its way; operators make new ones and never change one they were given."""

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Headers = ()) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        mine = (self.key, self.value, self.timestamp, self.headers)
        return mine == (other.key, other.value, other.timestamp, other.headers)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        headers = f", headers={self.headers!r}" if self.headers else ""
        return f"Record({self.key!r}, {self.value!r}, timestamp={self.timestamp}{headers})"


class Change(NamedTuple):
    """What happens to one key of a table; `old` is filled in only where someone downstream asked for it."""

    new: Any
    old: Any


class PartialCount(NamedTuple):
    """So many records of one key, counted where they were read."""

    records: int


class ValueAndTimestamp(NamedTuple):
    """A table's value with the time of the record that made it."""

    value: Any
    timestamp: int


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Times in milliseconds; the end is outside of a time window and inside a sliding or session window."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class Windowed:
    """A key in one window: what windowed aggregates are keyed by."""

    key: Any
    window: Window

    @property
    def start(self) -> int:
        return self.window.start

    @property
    def end(self) -> int:
        return self.window.end

    def __str__(self) -> str:
        return f"[{self.key}@{self.start}/{self.end}]"
