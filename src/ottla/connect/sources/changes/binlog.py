"""The binary log of MySQL or MariaDB as plain entries, read by a thread of its own through mysql-replication.

The library gives no way to wait for the next event with a limit, so the thread waits, and `take` takes from a bounded
queue. It also connects again by itself from where it once began: a second connection is therefore refused.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import NONE_SOURCE
from pymysqlreplication.event import (
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from ottla.connect.databases.dialect import TableId
from ottla.connect.sources.changes.mysql_types import LogColumn, column_of_log

_logger = logging.getLogger(__name__)

_MOST_ENTRIES: Final = 5_000
_MOST_BYTES: Final = 16 << 20
_BEAT_S: Final = 1.0
"""The server says each second that it lives, so that the thread sees an end, and a dead server is noticed."""
_SILENCE_S: Final = 30
_CONNECTIONS: Final = 2
_STANDALONE: Final = 1
_EVENTS: Final = (
    *(GtidEvent, HeartbeatLogEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XAPrepareEvent, XidEvent),
    *(DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent),
)

_NAME: Final = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TRUNCATE: Final = re.compile(
    rf"\s*(?:/\*.*?\*/\s*)*TRUNCATE\s+(?:TABLE\s+)?(?:({_NAME})\s*\.\s*)?({_NAME})(?:\s+(?:WAIT\s+\d+|NOWAIT))?[\s;]*",
    re.IGNORECASE | re.DOTALL,
)

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place between two events. `gtids` are those before it; empty where the server has none."""

    file: str
    at: int
    gtids: str = ""

    def order(self) -> tuple[int, int]:
        """Positions of one server can be compared by this."""
        number = self.file.rpartition(".")[2]
        return int(number) if number.isdecimal() else 0, self.at


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins at this place."""

    gtid: str | None
    file: str
    at: int


@dataclass(frozen=True, slots=True)
class LogRows:
    """Rows of one table. `number` counts the events of the transaction, its beginning included."""

    table: TableId
    columns: tuple[LogColumn, ...]
    op: str
    rows: Sequence[tuple[Row | None, Row | None]]
    number: int
    file: str
    at: int
    time_s: int
    server_id: int
    thread: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A statement that may have changed tables, and the database that it was in."""

    text: str
    database: str
    file: str
    at: int
    time_s: int
    server_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends; what follows is at this place."""

    file: str
    at: int
    time_s: int
    server_id: int


@dataclass(frozen=True, slots=True)
class Truncation:
    """A table was emptied by one statement: rows without columns."""

    rows: LogRows


Entry = Begin | LogRows | Definition | Truncation | Commit


class Binlog:
    """Reads the log from a position until it is closed."""

    def __init__(
        self,
        settings: Mapping[str, object],
        server_id: int,
        start: LogPosition,
        *,
        mariadb: bool,
        wanted: Callable[[TableId], bool],
    ) -> None:
        self._settings = {**settings, "read_timeout": _SILENCE_S}
        self._server_id = server_id
        self._mariadb = mariadb
        self._wanted = wanted
        self._start = start
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0
        self._error: Exception | None = None
        self._closed = False
        self._connections = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._main, name="binlog", daemon=True)
        self._thread.start()

    def take(self, timeout_s: float) -> Entry | None:
        """The next entry; None if there is none in time. The thread's error is raised behind the last entry."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._error, timeout_s)
            if self._entries:
                entry, size = self._entries.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return entry
            if self._error is not None:
                raise self._error
        return None

    def wait(self, timeout_s: float) -> None:
        """Waits until there is an entry, or an error."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._error, timeout_s)

    def close(self) -> None:
        """Ends the thread, at the latest with the server's next sign of life."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_BEAT_S * 5)

    # -- the thread

    def _main(self) -> None:
        try:
            with contextlib.closing(self._stream()) as stream:
                for entry, size in _Entries(stream, self._wanted, lambda: self._closed):
                    if not self._add(entry, size):
                        return
                if not self._closed:
                    raise pymysql.err.OperationalError(2013, "the server ended the stream of its binary log")
        except Exception as error:  # noqa: BLE001 - raised again where entries are taken
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _add(self, entry: Entry, size: int) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (len(self._entries) < _MOST_ENTRIES and self._bytes < _MOST_BYTES)
            )
            self._entries.append((entry, size))
            self._bytes += size
            self._changed.notify_all()
            return not self._closed

    def _stream(self) -> BinLogStreamReader:
        start = self._start
        by_gtid = bool(start.gtids)
        return BinLogStreamReader(
            connection_settings=dict(self._settings),
            server_id=self._server_id,
            blocking=True,
            resume_stream=True,
            only_events=_EVENTS,
            log_file=start.file or None,
            log_pos=start.at,
            auto_position=start.gtids or None,
            is_mariadb=self._mariadb and by_gtid,
            slave_heartbeat=_BEAT_S,
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )

    def _connect(self, **settings: object) -> pymysql.Connection:
        if self._connections >= _CONNECTIONS:
            raise pymysql.err.OperationalError(2013, "the connection to the server was lost")
        self._connections += 1
        if "db" in settings:
            settings["database"] = settings.pop("db")
        return pymysql.connect(**settings)


class _Entries:
    """The events of a stream as entries, with their sizes."""

    def __init__(
        self, stream: BinLogStreamReader, wanted: Callable[[TableId], bool], closed: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._wanted = wanted
        self._closed = closed
        self._number = 0
        self._open = False
        self._standalone = False
        self._gtid: tuple[str, int] | None = None
        self._thread: int | None = None
        self._columns: dict[int, tuple[LogColumn, ...]] = {}

    def __iter__(self) -> Iterator[tuple[Entry, int]]:
        while not self._closed() and (event := self._stream.fetchone()) is not None:
            if isinstance(event, HeartbeatLogEvent):
                continue
            if isinstance(event, RotateEvent):
                self._columns.clear()
                continue
            self._number += 1
            size = int(event.packet.event_size)
            for entry in self._of(event, size):
                yield entry, size

    def _of(self, event: object, size: int) -> Iterator[Entry]:
        if isinstance(event, TableMapEvent):
            self._columns[event.table_id] = columns_of(event)
        elif isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent):
            if (found := self._rows(event, size)) is not None:
                yield found
        elif isinstance(event, MariadbGtidEvent):
            yield self._begin(event.gtid, event.packet.log_pos - size)
            # Its statements have no session; that of an earlier transaction is not theirs.
            self._thread = None
            self._standalone = bool(event.flags & _STANDALONE)
        elif isinstance(event, GtidEvent):
            self._gtid = (event.gtid, event.packet.log_pos - size)
        elif isinstance(event, QueryEvent):
            yield from self._query(event, size)
        elif isinstance(event, XidEvent | XAPrepareEvent):
            yield self._commit(event)

    def _begin(self, gtid: str | None, at: int) -> Begin:
        self._open, self._standalone, self._number, self._gtid = True, False, 1, None
        return Begin(gtid, self._stream.log_file, at)

    def _commit(self, event: QueryEvent | XidEvent | XAPrepareEvent) -> Commit:
        self._open = False
        return Commit(self._stream.log_file, event.packet.log_pos, event.timestamp, event.packet.server_id)

    def _query(self, event: QueryEvent, size: int) -> Iterator[Entry]:
        text = str(event.query)
        word = text[:12].strip().upper()
        self._thread = int(event.slave_proxy_id)
        if word == "BEGIN":
            if not self._open:
                gtid, at = self._gtid or (None, event.packet.log_pos - size)
                yield self._begin(gtid, at)
        elif word in ("COMMIT", "ROLLBACK"):
            if self._open:
                yield self._commit(event)
        elif not self._open or self._standalone:
            if not self._open:
                gtid, at = self._gtid or (None, event.packet.log_pos - size)
                yield self._begin(gtid, at)
            if truncated := _TRUNCATE.fullmatch(text):
                yield from self._truncation(truncated, event, size)
            else:
                at = event.packet.log_pos - size
                place = (_schema_of(event), self._stream.log_file, at)
                yield Definition(text, *place, event.timestamp, event.packet.server_id)
            yield self._commit(event)

    def _truncation(self, found: re.Match[str], event: QueryEvent, size: int) -> Iterator[Entry]:
        place, name = (_unquoted(one) for one in found.groups())
        table = TableId(name, place or _schema_of(event))
        if self._wanted(table):
            at, server_id = event.packet.log_pos - size, event.packet.server_id
            rows: list[tuple[Row | None, Row | None]] = [(None, None)]
            yield Truncation(
                LogRows(
                    *(table, (), "t", rows, self._number, self._stream.log_file, at),
                    *(event.timestamp, server_id, None, size),
                )
            )

    def _rows(self, event: WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent, size: int) -> LogRows | None:
        table = TableId(event.table, event.schema)
        if not self._wanted(table):
            return None
        rows: list[tuple[Row | None, Row | None]]
        if isinstance(event, WriteRowsEvent):
            op, rows = "c", [(None, _values(one, "")) for one in event.rows]
        elif isinstance(event, DeleteRowsEvent):
            op, rows = "d", [(_values(one, ""), None) for one in event.rows]
        else:
            op, rows = "u", [(_values(one, "before_"), _values(one, "after_")) for one in event.rows]
        return LogRows(
            table,
            self._columns[event.table_id],
            op,
            rows,
            self._number,
            self._stream.log_file,
            event.packet.log_pos - size,
            event.timestamp,
            event.packet.server_id,
            self._thread,
            size,
        )


def _schema_of(event: QueryEvent) -> str:
    return event.schema.decode("utf-8", "replace") if isinstance(event.schema, bytes) else str(event.schema)


def _unquoted(name: str | None) -> str:
    if name is None:
        return ""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _values(row: Mapping[str, dict[str, object]], which: str) -> Row:
    """The values of a row. The library has None for a set without members, and says so beside."""
    values = row[f"{which}values"]
    for name, why in row[f"{which}none_sources"].items():
        if why == NONE_SOURCE.EMPTY_SET:
            values[name] = frozenset()
    return values


def columns_of(event: TableMapEvent) -> tuple[LogColumn, ...]:
    """The columns that the log describes; names need binlog_row_metadata=FULL."""
    found = event.optional_metadata
    keys = list(found.simple_primary_key_list) or list(found.primary_keys_with_prefix)
    nulls = bytes(event.null_bitmask)
    return tuple(
        column_of_log(
            column,
            nullable=bool(nulls[index // 8] >> (index % 8) & 1),
            key=keys.index(index) + 1 if index in keys else 0,
        )
        for index, column in enumerate(event.columns)
    )
