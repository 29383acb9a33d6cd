"""Reads a snapshot table by table, then the stream of a replication slot, in cycles of bounded size.

A temporary slot exports the snapshot of a table and its position S in the log. The stream comes from the connector's
own slot; of that table, transactions that committed before S are in the snapshot and are left out. So a connector
that ends in the middle of its snapshot goes on with the next table. A transaction larger than a cycle is split:
`ottla_events` counts the events of it that are in Kafka.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data.schema import ConnectValue
from ottla.connect.databases.connection import Connection, Cursor
from ottla.connect.databases.dialect import FETCH_ROWS, TableId
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.sources.changes import pgoutput
from ottla.connect.sources.changes.envelope import CREATE, READ, TRUNCATE, UPDATE, VERSION, Change
from ottla.connect.sources.changes.keys import ChangeSettings
from ottla.connect.sources.changes.pg_chunks import PgChunks
from ottla.connect.sources.changes.pg_server import PgServer, PgTable, lsn_number, lsn_text
from ottla.connect.sources.changes.reader import (
    DRAIN_S,
    NO_SNAPSHOT,
    SNAPSHOT_TABLES,
    ChangeReader,
    snapshot_tables,
)
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
from ottla.json_types import Json, JsonObject, as_int, to_int

if TYPE_CHECKING:
    from psycopg2.extras import ReplicationMessage

_logger = logging.getLogger(__name__)

_FEEDBACK_S: Final = 1.0
_LAG_S: Final = 5.0
_REST_S: Final = 60.0


@dataclass(slots=True)
class _Event:
    """A change that waits to be written: its table as it was then, and where it stands in the log."""

    table: PgTable
    op: str
    old: pgoutput.Values | None
    new: pgoutput.Values | None
    old_is_key: bool
    lsn: int
    begin: pgoutput.Begin
    committed: int | None
    """Where the transaction before it ended."""
    order: Order | None = None


@dataclass(slots=True)
class _Snapshot:
    """An exported snapshot, which lives as long as its two connections."""

    lsn: int
    slot: Connection
    rows: Connection
    at_us: int


class PostgresReader(ChangeReader[_Event]):
    """Reads one database for one connector."""

    def __init__(self, values: ConfigValues) -> None:
        super().__init__(ChangeSettings.of(values), "postgresql")
        self._drop_slot: bool = values["slot.drop.on.stop"]
        self._server = PgServer(values)
        self._snapshot: _Snapshot | None = None
        self._stream: Cursor = None
        self._stream_connection: Connection = None
        self._relations: dict[int, PgTable | None] = {}
        self._begin: pgoutput.Begin | None = None
        self._begun_lsn = 0
        self._begun_events = 0
        self._skip_events = 0
        self._last: _Event | None = None
        """The last change that was met, in Kafka or not."""
        self._done_lsn = 0
        """Transactions that committed before are in Kafka."""
        self._done_xid, self._done_event = -1, 0
        """Of this transaction, the events up to a position are in Kafka."""
        self._committed: int | None = None
        self._finished_lsn = 0
        """The end of the last transaction that was taken from the stream."""
        self._confirmed_lsn = 0
        self._fed_back = 0.0
        self._lag: tuple[float, str | None] = (0.0, None)
        self._chunks = PgChunks(self._server)

    def describe(self) -> list[str]:
        """What `ottla connect validate` shows."""
        self._server.check_settings()
        tables = self._server.tables()
        if not tables:
            raise TaskFailed("no table is chosen: look at table.include.list")
        slot = "is there" if self._server.has_slot() else "is made at the start"
        if self._settings.signals and not self._signal_tables():
            raise TaskFailed(missing_table(self._settings.signals))
        return [f"reads {', '.join(map(str, tables))}", f"slot {self._server.slot} {slot}"]

    # -- planning

    def _prepare(self, stored: Mapping[str, Json]) -> None:
        server = self._server
        server.check_settings()
        signals = self._signal_tables()
        if self._settings.signals and not signals:
            _logger.warning("%s", missing_table(self._settings.signals))
        tables = server.tables()
        server.ensure_publication([*tables, *(one for one in signals if one not in tables)])
        there = server.has_slot()
        if (
            not there
            and stored
            and self._is_complete(stored)
            and self._settings.snapshot_mode != "initial_only"
        ):
            position = lsn_text(to_int(stored.get("lsn", 0)))
            raise TaskFailed(
                f"slot {server.slot} is gone: the changes since {position} cannot be read. Reset the connector's "
                "offsets for a new snapshot, or make the slot again and accept that those changes are missing"
            )
        if not there and self._settings.snapshot_mode != "initial_only":
            server.ask("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [server.slot])
            _logger.info("made the replication slot %s", server.slot)

    def _signal_tables(self) -> list[TableId]:
        """The table of signals, if it is there."""
        if not self._settings.signals:
            return []
        table = table_of(self._settings.signals)
        return [table] if self._server.has_table(table) else []

    def _is_complete(self, stored: Mapping[str, Json]) -> bool:
        """Debezium marks the snapshot's last record, and leaves `snapshot` out of the stream."""
        if not stored:
            return False
        return "snapshot" not in stored or bool(stored.get("last_snapshot_record"))

    def _plan_table(self, stored: Mapping[str, Json]) -> JsonObject:
        """The next table of the snapshot; the offset says with which position it was read."""
        done = snapshot_tables(stored)
        if self._settings.snapshot_mode in NO_SNAPSHOT:
            rows = self._server.ask(
                "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s",
                [self._server.slot],
            )
            return _snapshot_offset(lsn_number(rows[0][0]), {}, last=True)
        waiting = [one for one in self._server.tables() if str(one) not in done]
        snapshot = self._exported()
        work = Work.of(stored)
        if waiting:
            table = waiting[0]
            large = self._server.rows_of(table) > self._settings.most_rows and self._server.key_names(table)
            if large:
                _logger.info(
                    "table %s is read in parts, beside the stream: it is too large for one cycle", table
                )
                work = work.with_table(table)
            done[str(table)] = 0 if large else snapshot.lsn
        return work.into(_snapshot_offset(snapshot.lsn, done, last=len(waiting) <= 1))

    def _exported(self) -> _Snapshot:
        if self._snapshot is not None:
            return self._snapshot
        dialect = self._server.dialect
        slot = dialect.replication()
        with dialect.errors("cannot export a snapshot"), slot.cursor() as cursor:
            cursor.execute(
                f'CREATE_REPLICATION_SLOT "ottla_{time.time_ns():x}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
            )
            _, position, name, _ = cursor.fetchone()
            rows = dialect.connect_for_texts()
            with rows.cursor() as other:
                other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                other.execute("SET TRANSACTION SNAPSHOT %s", (name,))
        self._snapshot = _Snapshot(lsn_number(position), slot, rows, time.time_ns() // 1000)
        return self._snapshot

    def _open_stream(self, stored: Mapping[str, Json]) -> None:
        self._close_snapshot()
        dialect = self._server.dialect
        self._stream_connection = dialect.replication()
        cursor = self._stream_connection.cursor()
        with dialect.errors(f"cannot read slot {self._server.slot}"):
            cursor.start_replication(
                slot_name=self._server.slot,
                decode=False,
                start_lsn=to_int(stored.get("lsn_commit") or 0),
                status_interval=5,
                options={"proto_version": "1", "publication_names": self._server.publication},
            )
        self._stream = cursor
        self._committed = to_int(stored.get("lsn_commit") or 0) or None

    # -- the stream

    def _drain(self, stored: Mapping[str, Json], limit: ReadLimit) -> None:
        """Takes whole transactions until the limit; one that is larger is cut."""
        if self._stream is None:
            self._open_stream(stored)
        with self._server.dialect.errors(f"the stream of slot {self._server.slot} ended"):
            self._drain_stream(stored, limit)
        if not self._drained.events:
            self._feed_back(idle=True)

    def _drain_stream(self, stored: Mapping[str, Json], limit: ReadLimit) -> None:
        passed = _positions(stored)
        self._done_lsn = to_int(stored.get("lsn_commit") or 0)
        self._done_xid, self._done_event = _done_in_transaction(stored)
        until = time.monotonic() + DRAIN_S
        while self._drained.events or time.monotonic() < until:
            message = self._stream.read_message()
            if message is None:
                if not self._drained.events or self._begin is None:
                    return
                self._await_rest()
                continue
            self._take(message, stored, passed)
            if self._chunk is not None and self._chunk_is_passed():
                return
            drained = self._drained
            if drained.is_full(limit):
                if self._begin is not None and self._last is not None:
                    drained.offset = self._offset(self._last, stored, None)
                return

    def _await_rest(self) -> None:
        """The rest of a transaction is under way."""
        ready, _, _ = select.select([self._stream], [], [], _REST_S)
        if not ready:
            raise Retriable(
                f"the stream of slot {self._server.slot} stopped within a transaction for {_REST_S:.0f} s"
            )

    def _take(
        self, message: ReplicationMessage, stored: Mapping[str, Json], passed: Mapping[str, int]
    ) -> None:
        found = pgoutput.decode(message.payload)
        if isinstance(found, pgoutput.RowChange):
            self._add(
                found.relation, found.op, found.old, found.new, found.old_is_key, message, stored, passed
            )
        elif isinstance(found, pgoutput.Begin):
            self._begin, self._begun_events, self._begun_lsn = found, 0, message.data_start
            again = found.lsn == to_int(stored.get("ottla_tx", -1))
            self._skip_events = to_int(stored.get("ottla_events", 0)) if again else 0
        elif isinstance(found, pgoutput.Commit):
            begin, self._begin = self._begin, None
            self._finished_lsn = found.end_lsn
            self._committed = found.end_lsn
            if begin is not None:
                self._end_transaction(begin, found.end_lsn, stored)
        elif isinstance(found, pgoutput.Relation):
            self._relations[found.oid] = self._relation(found)
        elif isinstance(found, pgoutput.Truncated):
            for oid in found.relations:
                self._add(oid, TRUNCATE, None, None, False, message, stored, passed)

    def _end_transaction(self, begin: pgoutput.Begin, end_lsn: int, stored: Mapping[str, Json]) -> None:
        self._chunks.met(begin.xid)
        drained, last = self._drained, self._last
        if counts := self._counter.end():
            drained.events.append(Mark(f"{begin.xid}:{end_lsn}", begin.time_us // 1000, counts))
        if drained.is_something() and last is not None and last.begin is begin:
            drained.offset = self._offset(last, stored, end_lsn)

    def _add(
        self,
        oid: int,
        op: str,
        old: pgoutput.Values | None,
        new: pgoutput.Values | None,
        old_is_key: bool,
        message: ReplicationMessage,
        stored: Mapping[str, Json],
        passed: Mapping[str, int],
    ) -> None:
        begin = self._begin
        if begin is None:
            raise TaskFailed("PostgreSQL sent a change outside of a transaction")
        self._begun_events += 1
        table = self._relations.get(oid)
        if table is None:
            return
        settings = self._settings
        wanted, signals = table.wanted and op not in settings.skipped, settings.signals == table.name
        if not (wanted or signals):
            return
        if begin.lsn < self._done_lsn or (passed and begin.lsn < passed.get(table.name, 0)):
            return
        event = _Event(table, op, old, new, old_is_key, message.data_start, begin, self._committed)
        first = wanted and settings.transactions and self._count(event)
        self._last = event
        if self._begun_events <= self._skip_events:
            return
        if begin.xid == self._done_xid and message.data_start <= self._done_event:
            return
        if wanted:
            if first:
                mark = Mark(f"{begin.xid}:{self._begun_lsn}", begin.time_us // 1000, None)
                self._drained.events.append(mark)
            self._drained.events.append(event)
            self._drained.bytes += len(message.payload)
            if self._chunk is not None:
                self._leave_out(self._chunk, event)
        if signals and op == CREATE and new is not None:
            kind, data = (None if one is None else str(one) for one in (*new, None, None)[1:3])
            self._signal(kind, data, f"{{lsn={event.lsn}, txId={begin.xid}}}")

    def _count(self, event: _Event) -> bool:
        """Gives a change its place in its transaction; whether it is the first one."""
        moved = event.op == UPDATE and event.old is not None and self._change(event).moved_from is not None
        transaction = f"{event.begin.xid}:{event.lsn}"
        event.order = self._counter.count(transaction, event.table.name, 2 if moved else 1)
        return event.order.total == 1

    def _leave_out(self, chunk: Chunk, event: _Event) -> None:
        """A row of the chunk that the log changes later; its newer version is in the log."""
        if chunk.waiting.table != event.table.name or chunk.includes(event.begin.xid):
            return
        if event.op == TRUNCATE:
            chunk.changes.clear()
            return
        change = self._change(event)
        chunk.drop(change.before, change.after, change.moved_from)

    def _relation(self, found: pgoutput.Relation) -> PgTable | None:
        table = TableId(found.name, found.schema)
        if not self._server.wanted(table) and str(table) != self._settings.signals:
            return None
        rows = [(one.name, one.oid, one.modifier) for one in found.columns]
        return self._server.shape_table(table, rows)

    def _offset(self, last: _Event, stored: Mapping[str, Json], end_lsn: int | None) -> JsonObject:
        """The offset behind an event; `end_lsn` is the end of its transaction, None if there is more of it."""
        begin = last.begin
        offset: JsonObject = {
            "lsn": last.lsn,
            "lsn_proc": last.lsn,
            "lsn_commit": end_lsn if end_lsn is not None else last.committed or 0,
            "txId": begin.xid,
            "ts_usec": begin.time_us,
            "messageType": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}.get(last.op, "TRUNCATE"),
        }
        if end_lsn is None:
            offset |= {"ottla_tx": begin.lsn, "ottla_events": self._begun_events}
        left = {key: lsn for key, lsn in _positions(stored).items() if lsn > begin.lsn}
        if left:
            offset[SNAPSHOT_TABLES] = json.dumps(left)
        return self._work.into(offset)

    # -- incremental snapshots

    def _tables(self) -> list[TableId]:
        return self._server.tables()

    def _read_chunk(self, waiting: Waiting) -> Chunk | None:
        at = self._committed
        return self._chunks.read(
            waiting,
            self._settings.chunk_rows,
            lambda table: self._source(table, time.time_ns() // 1000, None, None, at, INCREMENTAL),
        )

    def _chunk_is_passed(self) -> bool:
        done = max(self._finished_lsn, self._stream.wal_end)
        return self._begin is None and done >= self._chunks.passed_at

    # -- heartbeats and feedback

    def _ask(self, sql: str) -> object:
        return self._server.ask(sql)

    def _beat(self, stored: Mapping[str, Json]) -> JsonObject:
        return {**stored, "ts_usec": time.time_ns() // 1000}

    def _feed_back(self, *, idle: bool) -> None:
        """Tells the server which part of the log it may remove."""
        if idle and self._begin is None and self._stream is not None:
            # Nothing of ours is pending: the slot need not hold what other tables wrote.
            self._confirmed_lsn = max(self._confirmed_lsn, self._finished_lsn, self._stream.wal_end)
        now = time.monotonic()
        if self._stream is None or not self._confirmed_lsn or now - self._fed_back < _FEEDBACK_S:
            return
        self._fed_back = now
        with self._server.dialect.errors(f"the stream of slot {self._server.slot} ended"):
            self._stream.send_feedback(flush_lsn=self._confirmed_lsn, force=True)

    def commit(self, end: Offsets) -> None:
        super().commit(end)
        if self._begin is None:
            self._confirmed_lsn = max(self._confirmed_lsn, self._finished_lsn)
        self._feed_back(idle=False)

    # -- reading

    def _snapshot_changes(self, table: TableId) -> Iterator[Change]:
        snapshot = self._exported()
        described = self._server.describe_table(table)
        dialect = self._server.dialect
        wanted = [one for one, kind in zip(described.names, described.types, strict=True) if kind is not None]
        listed = ", ".join(map(dialect.quote, wanted)) or "1"
        parsers = [kind.parse for kind in described.types if kind is not None]
        source = self._source(table, snapshot.at_us, snapshot.lsn, None, None)
        with (
            dialect.errors(f"cannot read {table}"),
            contextlib.closing(snapshot.rows.cursor(f"ottla_{time.time_ns():x}")) as cursor,
        ):
            cursor.itersize = FETCH_ROWS
            cursor.execute(f"SELECT {listed} FROM {dialect.table(table)}")
            for row in cursor:
                values = [
                    None if text is None else parse(text) for parse, text in zip(parsers, row, strict=False)
                ]
                yield Change(described.shape, READ, None, values, source)

    def _change(self, event: _Event) -> Change:
        table, begin, shape = event.table, event.begin, event.table.shape
        old = None if event.old is None else table.row(event.old, None)
        new = None if event.new is None else table.row(event.new, None if event.old_is_key else old)
        source = self._source(table.table, begin.time_us, event.lsn, begin, event.committed)
        moved = None
        before = old
        if event.op == UPDATE and old is not None:
            if new is not None and not shape.has_same_key(old, new):
                moved = old
            if event.old_is_key:
                before = None
        return Change(shape, event.op, before, new, source, moved, event.order)

    def _source(
        self,
        table: TableId,
        at_us: int,
        lsn: int | None,
        begin: pgoutput.Begin | None,
        committed: int | None,
        snapshot: str = "false",
    ) -> list[ConnectValue]:
        """The block `source`, in the order of its fields."""
        before = "null" if committed is None else f'"{committed}"'
        return [
            VERSION,
            "postgresql",
            self._server.prefix,
            at_us // 1000,
            snapshot,
            self._server.dialect.address.database,
            f'[{before},"{lsn}"]' if lsn is not None else f"[{before},{before}]",
            at_us,
            at_us * 1000,
            table.schema,
            table.name,
            begin.xid if begin is not None else None,
            lsn,
            None,
            None,
            None,
        ]

    # -- the rest

    def lag(self, start: Offsets) -> str | None:
        """Bytes of the log that the slot holds."""
        asked, shown = self._lag
        if time.monotonic() - asked < _LAG_S:
            return shown
        try:
            rows = self._server.ask(
                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8 "
                "FROM pg_replication_slots WHERE slot_name = %s",
                [self._server.slot],
            )
        except ConnectError as error:
            _logger.debug("lag is not known: %s", error)
            return shown
        self._lag = (time.monotonic(), f"{rows[0][0]} bytes of WAL" if rows else None)
        return self._lag[1]

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        if self._stream is None:
            stopping(timeout_s)
        else:
            select.select([self._stream], [], [], timeout_s)

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.rows.close()
            self._snapshot.slot.close()
            self._snapshot = None

    def stop(self) -> None:
        self._close_snapshot()
        self._chunks.close()
        if self._stream_connection is not None:
            self._stream_connection.close()
            self._stream_connection = self._stream = None
        if self._drop_slot and self._ready:
            with contextlib.suppress(ConnectError):
                self._server.ask("SELECT pg_drop_replication_slot(%s)", [self._server.slot])
        self._server.close()


def _done_in_transaction(stored: Mapping[str, Json]) -> tuple[int, int]:
    """The transaction that Debezium's offset is in, and its last event in Kafka. Ours count events instead."""
    if "ottla_tx" in stored or "snapshot" in stored or stored.get("txId") is None:
        return -1, 0
    return to_int(stored["txId"]), to_int(stored.get("lsn") or 0)


def _positions(stored: Mapping[str, Json]) -> dict[str, int]:
    return {table: as_int(lsn, table) for table, lsn in snapshot_tables(stored).items()}


def _snapshot_offset(lsn: int, tables: JsonObject, *, last: bool) -> JsonObject:
    return {
        "lsn": lsn,
        "ts_usec": time.time_ns() // 1000,
        "snapshot": "INITIAL",
        "last_snapshot_record": last,
        SNAPSHOT_TABLES: json.dumps(tables),
    }
