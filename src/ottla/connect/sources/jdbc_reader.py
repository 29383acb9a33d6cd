"""Reads tables by cycles: plans up to which row a cycle goes, then reads what is between two offsets.

A plan asks for the offset of the last of so many rows; reading takes all rows up to it, so that rows with equal
times stay together.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import logging
import re
import time
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data.schema import Type
from ottla.connect.databases.connection import Connection, SqlRow, SqlValue
from ottla.connect.databases.dialect import FETCH_ROWS, Column, Dialect, TableId
from ottla.connect.databases.keys import dialect_for
from ottla.connect.databases.rows import kept_columns, rows_to_batch
from ottla.connect.failures import ConnectError, TaskFailed
from ottla.connect.spi import Offsets, Read, ReadLimit, SourceReader, partition_key
from ottla.json_types import Json, JsonObject, to_int

_logger = logging.getLogger(__name__)

_LEAST_SPLIT_ROWS: Final = 20_000
_ROW_BYTES: Final = 60
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_US: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Mark:
    """A row's place: its number, its time, or both."""

    number: int | None = None
    time: datetime.datetime | None = None

    @classmethod
    def of(cls, offset: Mapping[str, Json]) -> Mark:
        """From Confluent's offset."""
        number, ms, nanos = (offset.get(key) for key in ("incrementing", "timestamp", "timestamp_nanos"))
        when = None
        if ms is not None:
            seconds = _EPOCH + datetime.timedelta(seconds=to_int(ms) // 1000)
            us = to_int(nanos) // 1000 if nanos is not None else to_int(ms) % 1000 * 1000
            when = seconds + datetime.timedelta(microseconds=us)
        return cls(to_int(number) if number is not None else None, when)

    def offset(self) -> JsonObject:
        """As Confluent's connector stores it."""
        found: JsonObject = {}
        if self.number is not None:
            found["incrementing"] = self.number
        if self.time is not None:
            us = (self.time - _EPOCH) // _US
            found["timestamp"] = us // 1000
            found["timestamp_nanos"] = us % 1_000_000 * 1000
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one table or of the query, from one mark to another."""

    table: TableId | None
    start: Mark
    end: Mark


class JdbcReader(SourceReader):
    """Reads the tables, or the query, of one connector."""

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._mode: str = values["mode"]
        self._dialect: Dialect = dialect_for(values)
        self._zone = zoneinfo.ZoneInfo(values["db.timezone"] or "UTC")
        self._connection: Connection = None
        self._tables: list[TableId | None] = []
        self._listed_at: float | None = None
        self._due = 0.0
        self._planned_rows = 0
        self._numbers: dict[TableId | None, str] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connection": None}

    # -- tables

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._dialect.connect()
        return self._connection

    def _list_tables(self) -> list[TableId | None]:
        if self._values["query"]:
            return [None]
        with self._dialect.errors(f"cannot list the tables of {self._dialect.address}"):
            there = self._dialect.tables(self._connected(), self._values["table.types"])
        return [one for one in there if self._wanted(one)]

    def _wanted(self, table: TableId) -> bool:
        values = self._values
        if values["schema.pattern"] and table.schema != values["schema.pattern"]:
            return False
        names = {table.name, str(table)}
        if values["table.whitelist"]:
            return bool(names & set(values["table.whitelist"]))
        if names & set(values["table.blacklist"]) or _matches(values["table.exclude.list"], table):
            return False
        return not values["table.include.list"] or _matches(values["table.include.list"], table)

    def _refresh(self) -> None:
        now = time.monotonic()
        every_s = self._values["table.poll.interval.ms"] / 1000
        if self._listed_at is None or now - self._listed_at >= every_s or not self._tables:
            self._tables = self._list_tables()
            self._listed_at = now
            if not self._tables:
                _logger.warning(
                    "%s has no table that the connector reads yet: it looks again", self._dialect.address
                )

    def describe(self) -> list[str]:
        """What `ottla connect validate` shows."""
        tables = self._list_tables()
        if not tables:
            raise TaskFailed(f"{self._dialect.address} has no table that the lists of tables allow")
        for table in tables:
            self._order(table)
        shown = ", ".join(str(one) for one in tables if one is not None) or "the query"
        return [f"{self._dialect.address} has {shown}"]

    # -- columns of the mode

    def _times(self) -> list[str]:
        return self._values["timestamp.column.name"] if "timestamp" in self._mode else []

    def _time_sql(self) -> str:
        named = [self._dialect.time_sql(self._dialect.quote(one)) for one in self._times()]
        return named[0] if len(named) == 1 else f"COALESCE({', '.join(named)})"

    def _order(self, table: TableId | None) -> str:
        """The name of the incrementing column, after the columns were checked."""
        if table in self._numbers:
            return self._numbers[table]
        name: str = self._values["incrementing.column.name"] if "incrementing" in self._mode else ""
        if table is not None and self._mode != "bulk":
            with self._dialect.errors(f"cannot read the columns of {table}"):
                columns = {one.name: one for one in self._dialect.columns(self._connected(), table)}
            if "incrementing" in self._mode:
                name = name or _numbered(table, columns.values())
                self._check_column(table, columns, name)
            for one in self._times():
                self._check_column(table, columns, one, alone=len(self._times()) == 1)
        self._numbers[table] = name
        return name

    def _check_column(
        self, table: TableId, columns: Mapping[str, Column], name: str, *, alone: bool = True
    ) -> None:
        found = columns.get(name)
        if found is None:
            raise TaskFailed(f"table {table} has no column {name}: its columns are {', '.join(columns)}")
        if self._values["validate.non.null"] and alone and found.schema is not None and found.schema.optional:
            raise TaskFailed(
                f"column {name} of {table} can be null, so that rows could be missed: declare it NOT NULL, "
                "or set validate.non.null=false"
            )

    # -- planning

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        if time.monotonic() < self._due:
            return start
        self._refresh()
        self._planned_rows = 0
        end: Offsets = {}
        rows = limit.records
        for table in self._tables:
            if rows <= 0:
                break
            key = self._key(table)
            planned = self._plan(table, start.get(key, {}), rows)
            if planned is not None:
                end[key], count = planned
                rows -= count
                self._planned_rows += count
        if rows > 0:
            self._due = time.monotonic() + self._values["poll.interval.ms"] / 1000
        return {**start, **end} if end else start

    def _key(self, table: TableId | None) -> str:
        if table is None:
            return partition_key({"query": "query"})
        return partition_key({"protocol": "1", "table": str(table)})

    def _plan(
        self, table: TableId | None, stored: Mapping[str, Json], limit: int
    ) -> tuple[JsonObject, int] | None:
        if self._mode == "bulk":
            now = time.time_ns() // 1_000_000
            if now < to_int(stored.get("polled", 0)) + self._values["poll.interval.ms"]:
                return None
            return {"polled": now}, 0
        self._order(table)
        start = self._start(stored)
        condition, values = self._after(table, start)
        columns = self._order_columns(table)
        connection = self._connected()
        names = [f"c{at}" for at in range(len(columns))]
        listed = ", ".join(f"{one} AS {name}" for one, name in zip(columns, names, strict=True))
        order = ", ".join(columns)
        inner = f"SELECT {listed} FROM {self._from(table)} WHERE {condition} ORDER BY {order} LIMIT {limit}"
        backwards = ", ".join(f"{name} DESC" for name in names)
        sql = f"SELECT x.*, (SELECT COUNT(*) FROM ({inner}) y) FROM ({inner}) x ORDER BY {backwards} LIMIT 1"
        with (
            self._dialect.errors(f"cannot plan the next rows of {table or 'the query'}"),
            _ending(connection),
        ):
            cursor = connection.cursor()
            self._dialect.execute(cursor, *self._final(sql, [*values, *values]))
            row = cursor.fetchone()
            cursor.close()
        if row is None:
            return None
        return self._mark(row).offset(), int(row[-1])

    def _start(self, stored: Mapping[str, Json]) -> Mark:
        start = Mark.of(stored)
        first = self._values["timestamp.initial"]
        if "timestamp" in self._mode and start.time is None:
            if first == -1:
                start = Mark(start.number, self._dialect.now(self._connected()))
            elif first is not None:
                start = Mark(start.number, _EPOCH + datetime.timedelta(milliseconds=first))
        return start

    def _mark(self, row: SqlRow) -> Mark:
        at = 0
        when = number = None
        if self._times():
            when = self._dialect.time_value(row[0], self._zone)
            at = 1
        if "incrementing" in self._mode:
            if row[at] != int(row[at]):
                raise TaskFailed(f"the incrementing column has {row[at]}, which is no whole number")
            number = int(row[at])
        return Mark(number, when)

    # -- SQL

    def _from(self, table: TableId | None) -> str:
        if table is not None:
            return self._dialect.table(table)
        query: str = self._values["query"]
        return f"({query.replace('%', '%%') if self._dialect.mark == '%s' else query}) ottla_query"

    def _final(self, sql: str, values: Sequence[SqlValue]) -> tuple[str, SqlRow]:
        """Drivers that take %s as a mark do so only where there are values."""
        doubled = self._dialect.mark == "%s" and not values
        return sql.replace("%%", "%") if doubled else sql, tuple(values)

    def _order_columns(self, table: TableId | None) -> list[str]:
        columns = [self._time_sql()] if self._times() else []
        if "incrementing" in self._mode:
            columns.append(self._dialect.quote(self._order(table)))
        return columns

    def _after(self, table: TableId | None, mark: Mark) -> tuple[str, list[SqlValue]]:
        """Rows behind a mark, and old enough."""
        condition, values = self._beyond(table, mark, ">", ">")
        if self._times():
            now = self._dialect.now(self._connected())
            newest = now - datetime.timedelta(milliseconds=self._values["timestamp.delay.interval.ms"])
            condition += f" AND {self._time_sql()} < {self._dialect.mark}"
            values.append(self._dialect.time_parameter(newest, self._zone))
        return condition, values

    def _beyond(
        self, table: TableId | None, mark: Mark, sign: str, last_sign: str
    ) -> tuple[str, list[SqlValue]]:
        """The condition that a row is before or behind a mark; `last_sign` compares what is compared last."""
        here = self._dialect.mark
        when = self._dialect.time_parameter(mark.time, self._zone) if mark.time is not None else None
        number = self._dialect.quote(self._order(table)) if "incrementing" in self._mode else ""
        if not self._times():
            return ("1 = 1", []) if mark.number is None else (f"{number} {last_sign} {here}", [mark.number])
        times = self._time_sql()
        if when is None:
            return f"{times} IS NOT NULL", []
        if not number or mark.number is None:
            return f"{times} {last_sign} {here}", [when]
        return (
            f"({times} {sign} {here} OR ({times} = {here} AND {number} {last_sign} {here}))",
            [when, when, mark.number],
        )

    # -- reading

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[Piece]:
        pieces: list[Piece] = []
        for table in self._tables:
            key = self._key(table)
            if key not in end or end[key] == start.get(key):
                continue
            first, last = self._start(start.get(key, {})), Mark.of(end[key])
            pieces += self._shared_out(table, first, last, max_splits)
        return pieces

    def _shared_out(self, table: TableId | None, first: Mark, last: Mark, most: int) -> list[Piece]:
        """Ranges of numbers for several tasks, where there are many rows."""
        wanted = min(most, self._planned_rows // _LEAST_SPLIT_ROWS)
        if wanted < 2 or self._mode != "incrementing" or first.number is None or last.number is None:
            return [Piece(table, first, last)]
        step = -(-(last.number - first.number) // wanted)
        borders = [*range(first.number, last.number, step), last.number]
        return [Piece(table, Mark(low), Mark(high)) for low, high in itertools.pairwise(borders)]

    def read(self, split: Piece) -> Iterator[Read]:
        connection = self._dialect.connect()
        try:
            what = str(split.table) if split.table is not None else "the query"
            with self._dialect.errors(f"cannot read {what}"):
                yield from self._rows(connection, split)
        finally:
            connection.close()

    def _rows(self, connection: Connection, split: Piece) -> Iterator[Read]:
        sql, values = self._select(split)
        prefix: str = self._values["topic.prefix"]
        topic = prefix + (split.table.name if split.table is not None else "")
        name = split.table.name if split.table is not None else None
        columns = self._dialect.columns(connection, split.table) if split.table is not None else None
        if columns is not None and not columns:
            raise TaskFailed(f"table {split.table} is gone: create it again, or change the list of tables")
        with self._dialect.streaming(connection, sql, values) as cursor:
            while rows := cursor.fetchmany(FETCH_ROWS):
                if columns is None:
                    columns = self._dialect.described(cursor, rows[0])
                kept = kept_columns(columns, self._numeric())
                yield rows_to_batch(self._dialect, kept, columns, rows, self._zone, topic, name)

    def _numeric(self) -> str:
        wanted: str = self._values["numeric.mapping"]
        return "precision_only" if wanted == "none" and self._values["numeric.precision.mapping"] else wanted

    def _select(self, split: Piece) -> tuple[str, Sequence[SqlValue]]:
        suffix = self._values["query.suffix"]
        source = self._from(split.table)
        if self._mode == "bulk":
            plain = self._values["query"] if split.table is None else f"SELECT * FROM {source}"
            return f"{plain} {suffix}".strip(), []
        lower, values = self._beyond(split.table, split.start, ">", ">")
        upper, more = self._beyond(split.table, split.end, "<", "<=")
        order = ", ".join(self._order_columns(split.table))
        sql = f"SELECT * FROM {source} WHERE {lower} AND {upper} ORDER BY {order} {suffix}".strip()
        return self._final(sql, [*values, *more])

    def size(self, start: Offsets, end: Offsets) -> int:
        return self._planned_rows * _ROW_BYTES

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        stopping(max(timeout_s, self._due - time.monotonic()) if self._tables else timeout_s)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextlib.contextmanager
def _ending(connection: Connection) -> Iterator[None]:
    """Ends the transaction of a query: an open one would hold old rows in the database."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the query's own error says more
            connection.rollback()


def _numbered(table: TableId, columns: Iterable[Column]) -> str:
    found = [one.name for one in columns if one.generated] or [
        one.name for one in columns if one.key and one.schema is not None and one.schema.type is Type.INT64
    ]
    if len(found) != 1:
        raise TaskFailed(
            f"table {table} has no column that the database numbers: name one in incrementing.column.name"
        )
    return found[0]


def _matches(patterns: Sequence[str], table: TableId) -> bool:
    try:
        return any(re.fullmatch(one, text) for one in patterns for text in (str(table), table.name))
    except re.error as error:
        raise ConnectError(f"a list of tables has a pattern that cannot be read: {error}") from None
