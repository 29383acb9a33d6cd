"""The data of a topology: records, changes of tables, and keys with their window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple

from ottla.streams.type_variables import K2, V2, K, V

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers as Kafka keeps them: in order, and names may repeat."""


class Record(Generic[K, V]):
    """A record with key, value, time in milliseconds and headers. Operators make new records and never change one.

    >>> record = Record("user-1", {"page": "/"}, timestamp=1_000)
    >>> record.with_value("/")
    Record('user-1', '/', timestamp=1000)
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = ()) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers

    def with_key(self, key: K2) -> Record[K2, V]:
        """The same record under another key.

        >>> Record("a", 1, timestamp=5).with_key("b")
        Record('b', 1, timestamp=5)
        """
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """The same record with another value.

        >>> Record("a", 1, timestamp=5).with_value(2)
        Record('a', 2, timestamp=5)
        """
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """The same record at another time.

        >>> Record("a", 1, timestamp=5).with_timestamp(6)
        Record('a', 1, timestamp=6)
        """
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """The same record with other headers.

        >>> Record("a", 1, timestamp=5).with_headers((("trace", b"42"),))
        Record('a', 1, timestamp=5, headers=(('trace', b'42'),))
        """
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


class Change(NamedTuple, Generic[V]):
    """A change of one key of a table. `old` is filled in only where an operator downstream needs it.

    >>> Change(new=3, old=2)
    Change(new=3, old=2)
    """

    new: V
    old: V | None


class PartialCount(NamedTuple):
    """A number of records of one key, counted by the task that read them."""

    records: int


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A table's value with the time of the record that made it.

    >>> ValueAndTimestamp(3, timestamp=1_000).value
    3
    """

    value: V
    timestamp: int


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A span of time in milliseconds. The end is outside of a time window, and inside a sliding or session window.

    >>> print(Window(0, 10_000))
    [0,10000)
    """

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class Windowed(Generic[K]):
    """A key in one window: windowed aggregates have such keys.

    >>> windowed = Windowed("user-1", Window(0, 10_000))
    >>> print(windowed)
    [user-1@0/10000]
    """

    key: K
    window: Window

    @property
    def start(self) -> int:
        """The start of the window.

        >>> Windowed("user-1", Window(0, 10_000)).start
        0
        """
        return self.window.start

    @property
    def end(self) -> int:
        """The end of the window.

        >>> Windowed("user-1", Window(0, 10_000)).end
        10000
        """
        return self.window.end

    def __str__(self) -> str:
        return f"[{self.key}@{self.start}/{self.end}]"
