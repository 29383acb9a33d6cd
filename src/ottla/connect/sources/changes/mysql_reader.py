"""Reads a snapshot table by table, then the binary log of MySQL or MariaDB, in cycles of bounded size.

The snapshot of a table has a place S in the log; of that table, transactions before S are left out of the stream. So a
connector that ends in the middle of its snapshot goes on with the next table. Offsets are Debezium's: the place where
the last transaction ended, or where the one that was cut began, and how many of its events are in Kafka.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pymysql
from pymysql.cursors import SSCursor
from pymysqlreplication.gtid import Gtid, GtidSet

from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import ConnectValue
from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import ConnectError, TaskFailed
from ottla.connect.sources.changes.binlog import (
    Begin,
    Binlog,
    Commit,
    Definition,
    Entry,
    LogPosition,
    LogRows,
    Truncation,
)
from ottla.connect.sources.changes.envelope import CREATE, READ, TRUNCATE, UPDATE, VERSION, Change
from ottla.connect.sources.changes.keys import ChangeSettings
from ottla.connect.sources.changes.mysql_chunks import MySqlChunks
from ottla.connect.sources.changes.mysql_server import MySqlServer, MySqlTable
from ottla.connect.sources.changes.reader import (
    DRAIN_S,
    NO_SNAPSHOT,
    SNAPSHOT_TABLES,
    ChangeReader,
    snapshot_tables,
)
from ottla.connect.sources.changes.schema_changes import SchemaChanges, statement
from ottla.connect.sources.changes.signals import (
    INCREMENTAL,
    Chunk,
    Waiting,
    Work,
    missing_table,
    table_of,
)
from ottla.connect.sources.changes.transactions import Mark, Order
from ottla.connect.spi import Offsets, ReadLimit
from ottla.json_types import Json, JsonObject, as_int, as_list, as_text

_logger = logging.getLogger(__name__)

_LAG_S: Final = 5.0
_MOST_SHAPES: Final = 10_000
_PURGED: Final = 1236


@dataclass(slots=True)
class _Event:
    """A row's change that waits to be written: its table as it was then, and where it stands in the log."""

    table: MySqlTable
    rows: LogRows
    index: int
    gtid: str | None
    order: Order | None = None


@dataclass(slots=True)
class _Snapshot:
    connection: pymysql.Connection
    at: LogPosition
    time_us: int


class Gtids:
    """The GTIDs of finished transactions: of MariaDB the last of each domain, of MySQL a set."""

    def __init__(self, text: str, *, mariadb: bool) -> None:
        self._last = dict(_domain(one) for one in text.split(",") if one) if mariadb else None
        self._set = None if mariadb else GtidSet(text)

    def add(self, gtid: str) -> None:
        """A transaction is finished."""
        if self._last is not None:
            domain, text = _domain(gtid)
            self._last[domain] = text
        else:
            self._set = self._set + Gtid(gtid)

    def __str__(self) -> str:
        return ",".join(self._last.values()) if self._last is not None else str(self._set)


def _domain(gtid: str) -> tuple[str, str]:
    return gtid.partition("-")[0], gtid


class MySqlReader(ChangeReader[_Event]):
    """Reads one server for one connector."""

    def __init__(self, values: Mapping[str, object], connector: str) -> None:
        super().__init__(ChangeSettings.of(values), connector)
        self._server = MySqlServer(values, connector)
        given = values["database.server.id"]
        self._server_id = given if isinstance(given, int) and given else random.randrange(5_400, 2**31)
        self._snapshot: _Snapshot | None = None
        self._log: Binlog | None = None
        self._shapes: dict[object, MySqlTable] = {}
        self._done = LogPosition("", 4)
        self._gtids = Gtids("", mariadb=True)
        self._begin: Begin | None = None
        self._skip = (0, 0)
        """How many events, and rows of the next one, of the first transaction are in Kafka."""
        self._lag: tuple[float, str | None] = (0.0, None)
        self._chunks = MySqlChunks(self._server, self._settings.signals)
        self._definitions: SchemaChanges | None = None
        if values["include.schema.changes"] is True:
            self._definitions = SchemaChanges(self._server, self._server.source)

    def describe(self) -> list[str]:
        """What `ottla connect validate` shows."""
        self._server.check_settings()
        tables = self._server.tables()
        if not tables:
            raise TaskFailed("no table is chosen: look at database.include.list and table.include.list")
        if self._settings.signals and not self._has_signals():
            raise TaskFailed(missing_table(self._settings.signals))
        at = self._server.end_of_log()
        by = f"GTIDs {at.gtids}" if at.gtids else "no GTIDs"
        return [f"reads {', '.join(map(str, tables))}", f"the log is at {at.file}, {at.at}, with {by}"]

    # -- planning

    def _prepare(self, stored: Mapping[str, Json]) -> None:
        self._server.check_settings()
        if self._settings.signals and not self._has_signals():
            _logger.warning("%s", missing_table(self._settings.signals))
        if not self._is_complete(stored):
            return
        at = _position(stored)
        if not at.gtids and not at.file:
            raise TaskFailed(
                "the stored offset names no place in a binary log, as if another kind of connector had written it: "
                "reset the connector's offsets, or give it another name"
            )
        if not at.gtids and not self._server.has_file(at.file):
            raise _purged(at, f"the server has no file {at.file}")

    def _has_signals(self) -> bool:
        return self._server.has_table(table_of(self._settings.signals))

    def _is_complete(self, stored: Mapping[str, Json]) -> bool:
        if not stored:
            return False
        return "snapshot" not in stored or stored.get("snapshot_completed") is True

    def _plan_table(self, stored: Mapping[str, Json]) -> JsonObject:
        """The next table of the snapshot; the offset says at which place it was read."""
        if self._settings.snapshot_mode in NO_SNAPSHOT:
            return _snapshot_offset(self._server.end_of_log(), {}, last=True)
        done = snapshot_tables(stored)
        waiting = [one for one in self._server.tables() if str(one) not in done]
        at = self._opened().at
        # The stream begins where the first table was read.
        start = _position(stored) if stored else at
        work = Work.of(stored)
        if waiting:
            table = waiting[0]
            large = bool(self._settings.signals) and self._server.rows_of(table) > self._settings.most_rows
            if large and any(one.key for one in self._server.table_columns(table)):
                _logger.info(
                    "table %s is read in parts, beside the log: it is too large for one cycle", table
                )
                work = work.with_table(table)
                done[str(table)] = ["", 0]
            else:
                done[str(table)] = [at.file, at.at]
        return work.into(_snapshot_offset(start, done, last=len(waiting) <= 1))

    def _opened(self) -> _Snapshot:
        if self._snapshot is None:
            connection, at = self._server.open_snapshot()
            self._snapshot = _Snapshot(connection, at, time.time_ns() // 1000)
        return self._snapshot

    def _open_log(self, stored: Mapping[str, Json]) -> Binlog:
        self._close_snapshot()
        start, mariadb = _position(stored), self._server.is_mariadb()
        self._done, self._begin = start, None
        self._gtids = Gtids(start.gtids, mariadb=mariadb)
        self._skip = (as_int(stored.get("event", 0), "event"), as_int(stored.get("row", 0), "row"))
        return Binlog(self._server.login, self._server_id, start, mariadb=mariadb, wanted=self._is_read)

    def _is_read(self, table: TableId) -> bool:
        return str(table) == self._settings.signals or self._server.wanted(table)

    # -- the log

    def _drain(self, stored: Mapping[str, Json], limit: ReadLimit) -> None:
        if self._log is None:
            self._log = self._open_log(stored)
        passed = _passed(stored)
        until = time.monotonic() + DRAIN_S
        with self._server.dialect.errors("the stream of the binary log ended"):
            try:
                while not self._drained.is_full(limit):
                    # The rest of a transaction is under way.
                    pending = self._drained.events and self._begin is not None
                    entry = self._log.take(1.0 if pending else 0.0)
                    if entry is not None:
                        self._take(entry, passed)
                        if self._chunk is not None and self._chunk_is_passed():
                            return
                    elif not pending:
                        return
                    if not self._drained.events and time.monotonic() > until:
                        return
            except pymysql.err.MySQLError as error:
                if error.args and error.args[0] == _PURGED:
                    raise _purged(self._done, str(error.args[-1])) from error
                raise

    def _take(self, entry: Entry, passed: Mapping[str, tuple[int, int]]) -> None:
        if isinstance(entry, LogRows):
            self._add(entry, passed)
        elif isinstance(entry, Begin):
            self._begin = entry
        elif isinstance(entry, Definition):
            self._server.forget_definitions()
            self._shapes.clear()
            if self._definitions is not None:
                self._define(self._definitions, entry, passed)
        elif isinstance(entry, Truncation):
            self._truncate(entry, passed)
        elif isinstance(entry, Commit):
            begin = self._begin
            if begin is not None and begin.gtid is not None:
                self._gtids.add(begin.gtid)
            self._begin, self._skip = None, (0, 0)
            self._done = LogPosition(entry.file, entry.at)
            if (counts := self._counter.end()) and begin is not None:
                self._drained.events.append(Mark(_transaction_id(begin), entry.time_s * 1000, counts))
            if self._drained.is_something():
                self._drained.offset = self._offset(entry.time_s, entry.server_id, passed)

    def _define(
        self, definitions: SchemaChanges, entry: Definition, passed: Mapping[str, tuple[int, int]]
    ) -> None:
        """The record of a statement about tables that are read."""
        done = statement(entry.text, entry.database)
        begin = self._begin
        if done is None or begin is None:
            return
        place = LogPosition(begin.file, begin.at).order()
        tables = tuple(
            (kind, one)
            for kind, one in done.tables
            if self._server.wanted(one) and place >= passed.get(str(one), (0, 0))
        )
        if not tables if done.tables else not self._server.reads_database(done.database):
            return
        at = LogPosition(entry.file, entry.at)

        def source(table: TableId) -> list[ConnectValue]:
            return self._source(table, entry.time_s * 1_000_000, at, 0, entry.server_id, begin.gtid, None)

        self._drained.events.append(definitions.record(entry.text, replace(done, tables=tables), source))

    def _before_snapshot(self) -> Iterator[SourceRecord]:
        if self._definitions is None:
            return
        snapshot = self._opened()

        def source(table: TableId) -> list[ConnectValue]:
            return self._source(table, time.time_ns() // 1000, snapshot.at, 0, 0, None, None, snapshot="true")

        yield from self._definitions.of_snapshot(self._server.tables(), source)

    def _truncate(self, entry: Truncation, passed: Mapping[str, tuple[int, int]]) -> None:
        """The log has TRUNCATE as a statement, without columns: the table tells what they are."""
        if TRUNCATE in self._settings.skipped:
            return
        try:
            columns = self._server.table_columns(entry.rows.table)
        except TaskFailed as error:
            _logger.info("a TRUNCATE has no record: %s", error)
            return
        self._add(replace(entry.rows, columns=columns), passed)

    def _add(self, rows: LogRows, passed: Mapping[str, tuple[int, int]]) -> None:
        begin = self._begin
        if begin is None:
            raise TaskFailed("the binary log has rows outside of a transaction")
        events, skipped_rows = self._skip
        again = rows.number <= events
        skipped = rows.op in self._settings.skipped
        signals = rows.op == CREATE and str(rows.table) == self._settings.signals
        if (skipped and not signals) or (again and not self._settings.transactions):
            return
        if LogPosition(begin.file, begin.at).order() < passed.get(str(rows.table), (0, 0)):
            return
        drained = self._drained
        done = len(rows.rows) if again else skipped_rows if rows.number == events + 1 else 0
        if not skipped and self._server.wanted(rows.table):
            table = self._shape(rows)
            for index in range(0 if self._settings.transactions else done, len(rows.rows)):
                event = _Event(table, rows, index, begin.gtid)
                first = self._settings.transactions and self._count(event, begin)
                if index < done:
                    continue
                if first:
                    drained.events.append(Mark(_transaction_id(begin), rows.time_s * 1000, None))
                drained.events.append(event)
                self._leave_out(event)
        if again:
            return
        if signals:
            self._take_signals(rows, done)
        drained.bytes += rows.bytes
        drained.offset = {
            **self._offset(rows.time_s, rows.server_id, passed),
            "file": begin.file,
            "pos": begin.at,
            "event": rows.number,
        }

    def _count(self, event: _Event, begin: Begin) -> bool:
        """Gives a change its place in its transaction; whether it is the first one."""
        moved = event.rows.op == UPDATE and self._change(event).moved_from is not None
        event.order = self._counter.count(_transaction_id(begin), str(event.table.table), 2 if moved else 1)
        return event.order.total == 1

    def _take_signals(self, rows: LogRows, done: int) -> None:
        for _, row in rows.rows[done:]:
            values = [(row or {}).get(one.name) for one in rows.columns[:3]]
            name, kind, data = (
                None if one is None else _text(one) for one in (*values, None, None, None)[:3]
            )
            if name is None or not self._chunks.saw(name):
                self._signal(kind, data, f"{{file={rows.file}, pos={rows.at}}}")

    def _leave_out(self, event: _Event) -> None:
        """A row of the chunk that the log changes later; its newer version is in the log."""
        chunk = self._chunk
        if chunk is None or not self._chunks.is_open or chunk.waiting.table != str(event.rows.table):
            return
        if event.rows.op == TRUNCATE:
            chunk.changes.clear()
            return
        change = self._change(event)
        chunk.drop(change.before, change.after)

    def _shape(self, rows: LogRows) -> MySqlTable:
        key = (rows.table, rows.columns)
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            found = self._shapes[key] = self._server.shape(rows.table, rows.columns)
        return found

    def _offset(self, time_s: int, server_id: int, passed: Mapping[str, tuple[int, int]]) -> JsonObject:
        """The offset behind the last finished transaction."""
        done = self._done
        offset: JsonObject = {"ts_sec": time_s, "file": done.file, "pos": done.at, "server_id": server_id}
        if gtids := str(self._gtids):
            offset["gtids"] = gtids
        left = {table: list(at) for table, at in passed.items() if at > done.order()}
        if left:
            offset[SNAPSHOT_TABLES] = json.dumps(left)
        return self._work.into(offset)

    # -- incremental snapshots

    def _tables(self) -> list[TableId]:
        return self._server.tables()

    def _read_chunk(self, waiting: Waiting) -> Chunk | None:
        at = self._done
        return self._chunks.read(
            waiting,
            self._settings.chunk_rows,
            lambda table: self._source(
                table, time.time_ns() // 1000, at, 0, 0, None, None, snapshot=INCREMENTAL
            ),
        )

    def _chunk_is_passed(self) -> bool:
        return self._begin is None and self._chunks.is_passed()

    def _ask(self, sql: str) -> object:
        return self._server.ask(sql)

    def _beat(self, stored: Mapping[str, Json]) -> JsonObject:
        """Moves on past other tables' changes, so that a quiet connector does not need their part of the log."""
        at = int(time.time())
        if self._begin is not None:
            return {**stored, "ts_sec": at}
        return self._offset(at, as_int(stored.get("server_id", 0), "server_id"), _passed(stored))

    # -- reading

    def _snapshot_changes(self, table: TableId) -> Iterator[Change]:
        snapshot = self._opened()
        described = self._server.shape(table, self._server.table_columns(table))
        dialect = self._server.dialect
        names = [name for name, _ in described.columns]
        listed = ", ".join(map(dialect.quote, names)) or "1"
        source = self._source(table, snapshot.time_us, snapshot.at, 0, 0, None, None)
        with (
            dialect.errors(f"cannot read {table}"),
            contextlib.closing(snapshot.connection.cursor(SSCursor)) as cursor,
        ):
            cursor.execute(f"SELECT {listed} FROM {dialect.table(table)}")
            for found in cursor:
                row = described.row(dict(zip(names, found, strict=False)))
                yield Change(described.shape, READ, None, row, source)

    def _change(self, event: _Event) -> Change:
        table, rows = event.table, event.rows
        old, new = rows.rows[event.index]
        before = None if old is None else table.row(old)
        after = None if new is None else table.row(new)
        at = LogPosition(rows.file, rows.at)
        source = self._source(
            table.table, rows.time_s * 1_000_000, at, event.index, rows.server_id, event.gtid, rows.thread
        )
        moved = None
        if rows.op == UPDATE and before is not None and after is not None:
            moved = None if table.shape.has_same_key(before, after) else before
        return Change(table.shape, rows.op, before, after, source, moved, event.order)

    def _source(
        self,
        table: TableId,
        at_us: int,
        at: LogPosition,
        row: int,
        server_id: int,
        gtid: str | None,
        thread: int | None,
        *,
        snapshot: str = "false",
    ) -> list[ConnectValue]:
        """The block `source`, in the order of its fields."""
        server = self._server
        times = (at_us, at_us * 1000)
        return [
            *(VERSION, server.connector, server.prefix, at_us // 1000, snapshot, table.schema, None, *times),
            *(table.name or None, server_id, gtid, at.file, at.at, row, thread, None),
        ]

    # -- the rest

    def lag(self, start: Offsets) -> str | None:
        """Bytes of the log that are not read yet."""
        asked, shown = self._lag
        if time.monotonic() - asked < _LAG_S:
            return shown
        number, at = _position(start.get(self._key, {})).order()
        try:
            behind = 0
            for row in self._server.ask("SHOW BINARY LOGS"):
                file, size = LogPosition(str(row["log_name"]), int(str(row["file_size"]))).order()
                behind += max(0, size - at) if file == number else size if file > number else 0
            shown = f"{behind} bytes of binary log"
        except ConnectError as error:
            _logger.debug("lag is not known: %s", error)
        self._lag = (time.monotonic(), shown)
        return shown

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        if self._log is None:
            stopping(timeout_s)
        else:
            self._log.wait(timeout_s)

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            with contextlib.suppress(pymysql.err.Error):
                self._snapshot.connection.close()
            self._snapshot = None

    def stop(self) -> None:
        self._close_snapshot()
        self._chunks.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        self._server.close()


def _transaction_id(begin: Begin) -> str:
    return begin.gtid or f"file={begin.file},pos={begin.at}"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _position(stored: Mapping[str, Json]) -> LogPosition:
    return LogPosition(
        as_text(stored.get("file", ""), "file"),
        as_int(stored.get("pos", 4), "pos"),
        as_text(stored.get("gtids") or "", "gtids"),
    )


def _passed(stored: Mapping[str, Json]) -> dict[str, tuple[int, int]]:
    """The places in the log at which tables were read, in a form that can be compared."""
    found = {}
    for table, value in snapshot_tables(stored).items():
        file, at = as_list(value, table)
        place = as_int(at, table)
        found[table] = (file, place) if isinstance(file, int) else LogPosition(str(file), place).order()
    return found


def _snapshot_offset(at: LogPosition, tables: JsonObject, *, last: bool) -> JsonObject:
    offset: JsonObject = {
        "ts_sec": int(time.time()),
        "file": at.file,
        "pos": at.at,
        "snapshot": "INITIAL",
        "snapshot_completed": last,
        SNAPSHOT_TABLES: json.dumps(tables),
    }
    if at.gtids:
        offset["gtids"] = at.gtids
    return offset


def _purged(at: LogPosition, words: str) -> TaskFailed:
    where = f"GTIDs {at.gtids}" if at.gtids else f"{at.file}, {at.at}"
    return TaskFailed(
        f"the server cannot give its binary log from {where} on: {' '.join(words.split())}. Changes may be missing: "
        "reset the connector's offsets for a new snapshot, and keep the log longer (binlog_expire_logs_seconds)"
    )
