"""Decodes the messages of PostgreSQL's plugin `pgoutput`, protocol version 1. It knows no connection and no types.

A row is a list of texts; None is null, and `UNCHANGED` is a large value that the server did not send again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ottla.connect.data.schema import ConnectValue
from ottla.connect.failures import TaskFailed


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
Values = list[ConnectValue]
_TEXT, _NULL, _SAME = b"tnu"
_EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts microseconds since 2000."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it."""

    name: str
    oid: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table with its columns."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; `lsn` is that of its commit."""

    lsn: int
    time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends; what follows is behind `end_lsn`."""

    lsn: int
    end_lsn: int


@dataclass(slots=True)
class RowChange:
    """A row was inserted (c), updated (u) or deleted (d). `old_is_key`: the old row has its key only."""

    op: str
    relation: int
    old: Values | None
    new: Values | None
    old_is_key: bool = False


@dataclass(frozen=True, slots=True)
class Truncated:
    """Tables were emptied."""

    relations: tuple[int, ...]


Message = Relation | Begin | Commit | RowChange | Truncated | None


class _Cursor:
    """Reads fields; a message that ends early is refused."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise TaskFailed(f"a message of pgoutput has {len(self._data)} bytes, but needs {end}")
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self, form: str) -> int:
        found: int = struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise TaskFailed("a message of pgoutput has a name without an end")
        found = self._data[self._at : end]
        self._at = end + 1
        return found.decode("utf-8", "replace")

    def row(self) -> Values:
        """All values of a row. Most of a stream's bytes pass here, so it reads without calls."""
        data, at, size = self._data, self._at + 2, len(self._data)
        values: Values = []
        append = values.append
        for _ in range(int.from_bytes(self.take(2), "big")):
            kind = data[at] if at < size else -1
            at += 1
            if kind == _TEXT:
                start = at + 4
                at = start + int.from_bytes(data[at:start], "big")
                if at > size:
                    raise TaskFailed(f"a message of pgoutput has {size} bytes, but needs {at}")
                append(data[start:at].decode("utf-8", "replace"))
            elif kind == _NULL:
                append(None)
            elif kind == _SAME:
                append(UNCHANGED)
            elif kind < 0:
                raise TaskFailed(f"a message of pgoutput has {size} bytes, but needs {at}")
            else:
                raise TaskFailed(f"a message of pgoutput has a value of the unknown kind {bytes([kind])!r}")
        self._at = at
        return values


def decode(data: bytes) -> Message:
    """The message of some bytes; None for kinds that do not matter here."""
    if not data:
        raise TaskFailed("a message of pgoutput is empty")
    cursor = _Cursor(data)
    kind = cursor.take(1)
    if kind == b"I":
        cursor.take(5)
        return RowChange("c", int.from_bytes(data[1:5], "big"), None, cursor.row())
    if kind == b"B":
        return Begin(cursor.number("Q"), cursor.number("q") + _EPOCH_US, cursor.number("I"))
    if kind == b"C":
        cursor.take(1)
        return Commit(cursor.number("Q"), cursor.number("Q"))
    if kind == b"R":
        return _relation(cursor)
    if kind == b"U":
        return _update(cursor)
    if kind == b"D":
        relation = cursor.number("I")
        by_key = cursor.take(1) == b"K"
        return RowChange("d", relation, cursor.row(), None, by_key)
    if kind == b"T":
        count = cursor.number("I")
        cursor.take(1)
        return Truncated(tuple(cursor.number("I") for _ in range(min(count, len(data)))))
    if kind in (b"O", b"Y", b"M"):
        return None
    raise TaskFailed(f"pgoutput sent a message of the unknown kind {kind!r}")


def _relation(cursor: _Cursor) -> Relation:
    oid, schema, name = cursor.number("I"), cursor.text(), cursor.text()
    identity = cursor.take(1).decode("ascii", "replace")
    columns = []
    for _ in range(cursor.number("H")):
        flags = cursor.number("B")
        named = cursor.text()
        kind, modifier = cursor.number("I"), cursor.number("i")
        columns.append(RelationColumn(named, kind, modifier, bool(flags & 1)))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _update(cursor: _Cursor) -> RowChange:
    relation = cursor.number("I")
    part = cursor.take(1)
    old, by_key = None, part == b"K"
    if part in (b"K", b"O"):
        old = cursor.row()
        part = cursor.take(1)
    if part != b"N":
        raise TaskFailed("an update of pgoutput has no new row")
    return RowChange("u", relation, old, cursor.row(), by_key)
