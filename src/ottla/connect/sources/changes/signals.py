"""Signals in a table of the database, as Debezium has them, and the incremental snapshots that they ask for.

The tables that wait are part of the offset, so a snapshot goes on where it was after a restart. A chunk of rows is read
beside the log; a row that the log changes meanwhile is left out of it, because the log has the newer one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import ConnectError
from ottla.connect.sources.changes.envelope import Change, Row, TableShape
from ottla.json_types import Json, JsonObject, JsonTypeError, as_list, as_object

_logger = logging.getLogger(__name__)

WORK: Final = "ottla_incremental"
"""The field of an offset with the tables that wait for an incremental snapshot, as JSON."""
INCREMENTAL: Final = "incremental"
_MOST_TABLES: Final = 10_000
_MOST_TEXT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """A table of which rows wait: those behind a key, if some were read, that a condition in SQL selects."""

    table: str
    condition: str = ""
    after: tuple[Json, ...] | None = None

    def as_json(self) -> Json:
        """As it is in an offset."""
        found: JsonObject = {"table": self.table}
        if self.condition:
            found["filter"] = self.condition
        if self.after is not None:
            found["after"] = list(self.after)
        return found

    @property
    def id(self) -> TableId:
        """The table."""
        schema, _, name = self.table.partition(".")
        return TableId(name, schema)


@dataclass(frozen=True, slots=True)
class Work:
    """The tables that wait for an incremental snapshot; the first one is being read."""

    tables: tuple[Waiting, ...] = ()
    paused: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Json]) -> Work:
        """The work that an offset holds."""
        text = stored.get(WORK)
        if not text:
            return cls()
        found = as_object(json.loads(str(text)), WORK)
        tables = []
        for one in as_list(found.get("tables"), WORK):
            given = as_object(one, WORK)
            after = None if given.get("after") is None else tuple(as_list(given["after"], WORK))
            tables.append(Waiting(str(given["table"]), str(given.get("filter") or ""), after))
        return cls(tuple(tables), found.get("paused") is True)

    def with_table(self, table: TableId) -> Work:
        """One table more."""
        return replace(self, tables=(*self.tables, Waiting(str(table))))

    def into(self, offset: JsonObject) -> JsonObject:
        """The offset with this work."""
        offset.pop(WORK, None)
        if self.tables:
            shown: JsonObject = {"tables": [one.as_json() for one in self.tables]}
            if self.paused:
                shown["paused"] = True
            offset[WORK] = json.dumps(shown)
        return offset

    @property
    def current(self) -> Waiting | None:
        """The table to read now."""
        return None if self.paused or not self.tables else self.tables[0]

    def read_up_to(self, after: Sequence[Json] | None) -> Work:
        """The current table is read up to a key; None if nothing is left of it."""
        first, *rest = self.tables
        if after is not None:
            rest.insert(0, replace(first, after=tuple(after)))
        return replace(self, tables=tuple(rest))


@dataclass(slots=True)
class Chunk:
    """Rows of one table that were read beside the log, by their keys; without a shape, the table is left out."""

    waiting: Waiting
    shape: TableShape | None = None
    changes: dict[str, Change] = field(default_factory=dict)
    after: tuple[Json, ...] | None = None
    """The key of the last row; None if the table has no more."""
    includes: Callable[[int], bool] = field(default=lambda _: False)
    """Whether the rows are as a transaction of the log left them."""

    def drop(self, *rows: Row | None) -> None:
        """The log has newer versions of these."""
        for row in rows:
            if row is not None:
                self.changes.pop(self.key(row), None)

    def key(self, row: Row) -> str:
        """What tells a row from others."""
        return "" if self.shape is None else repr([row[at] for at in self.shape.key_at])


def table_of(name: str) -> TableId:
    """The table that a key names with its schema or database."""
    schema, _, own = name.rpartition(".")
    return TableId(own, schema)


def missing_table(name: str) -> str:
    """What to do where the table of signals is not there."""
    return (
        f"there is no table {name} for signals: run CREATE TABLE {name} "
        "(id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT), or correct signal.data.collection"
    )


def obey(
    work: Work, kind: str | None, data: str | None, tables: Callable[[], Sequence[TableId]], at: str
) -> Work:
    """The work after a signal. One that is not understood changes nothing: the log says why."""
    try:
        if len(data or "") > _MOST_TEXT:
            raise ConnectError("its data is longer than 1 MiB")
        given = as_object(json.loads(data or "{}"), "data")
        if kind == "log":
            _logger.info("%s", str(given.get("message", "")).replace("{}", at))
        elif kind == "execute-snapshot":
            return _executed(work, given, tables())
        elif kind == "stop-snapshot":
            wanted = _patterns(given)
            left = [one for one in work.tables if wanted and not _matches(wanted, one.table)]
            return replace(work, tables=tuple(left))
        elif kind in ("pause-snapshot", "resume-snapshot"):
            return replace(work, paused=kind == "pause-snapshot")
        elif kind not in ("snapshot-window-open", "snapshot-window-close"):
            _logger.warning("the signal %s is not known: it is left alone", kind)
    except (ConnectError, JsonTypeError, RecursionError, ValueError, re.error) as error:
        _logger.warning("the signal %s cannot be followed: %s", kind, error)
    return work


def _executed(work: Work, given: JsonObject, tables: Sequence[TableId]) -> Work:
    if str(given.get("type") or INCREMENTAL).lower() != INCREMENTAL:
        raise ConnectError("only snapshots of the type incremental are there")
    wanted = _patterns(given)
    if not wanted:
        raise ConnectError('it names no tables in "data-collections"')
    conditions = []
    for one in as_list(given.get("additional-conditions") or [], "additional-conditions"):
        condition = as_object(one, "additional-conditions")
        conditions.append((str(condition.get("data-collection")), str(condition.get("filter") or "")))
    waiting = {one.table for one in work.tables}
    more = []
    for table in map(str, tables):
        if _matches(wanted, table) and table not in waiting:
            found = [text for name, text in conditions if _matches([re.compile(name)], table)]
            more.append(Waiting(table, found[0] if found else ""))
    if not more:
        raise ConnectError("no table that this connector reads has such a name, or all wait already")
    if len(work.tables) + len(more) > _MOST_TABLES:
        raise ConnectError(f"more than {_MOST_TABLES} tables would wait")
    return replace(work, tables=(*work.tables, *more))


def _patterns(given: JsonObject) -> list[re.Pattern[str]]:
    listed = as_list(given.get("data-collections") or [], "data-collections")
    return [re.compile(str(one), re.IGNORECASE) for one in listed]


def _matches(wanted: Sequence[re.Pattern[str]], table: str) -> bool:
    return any(one.fullmatch(table) for one in wanted)
