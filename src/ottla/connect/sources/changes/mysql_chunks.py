"""Chunks of a MySQL or MariaDB table for an incremental snapshot, between two rows in the table of signals.

Both rows are in the log, as Debezium writes them. A transaction before the first one is seen by the query between them,
one behind the second one is not, and a change between them replaces the row of the chunk.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import logging
import uuid
from collections.abc import Callable
from typing import Final

import pymysql

from ottla.connect.data.schema import ConnectValue
from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.envelope import READ, Change
from ottla.connect.sources.changes.mysql_server import MySqlServer
from ottla.connect.sources.changes.signals import Chunk, Waiting
from ottla.json_types import Json, as_object

_logger = logging.getLogger(__name__)

_BYTES: Final = "bytes"


class MySqlChunks:
    """Reads chunks over a connection of their own."""

    def __init__(self, server: MySqlServer, signals: str) -> None:
        self._server = server
        self._signals = signals
        self._connection: pymysql.Connection | None = None
        self._window = ""
        self._closed = True
        self.is_open = False
        """Whether the log is between the two rows: changes there are newer than the chunk."""

    def saw(self, name: str) -> bool:
        """Whether a row in the table of signals is the beginning or the end of the last chunk."""
        if not self._window or name not in (f"{self._window}-open", f"{self._window}-close"):
            return False
        self.is_open = name.endswith("open")
        self._closed = not self.is_open
        return True

    def is_passed(self) -> bool:
        """Whether the log was read up to the end of the last chunk."""
        return self._closed

    def read(
        self, waiting: Waiting, count: int, source: Callable[[TableId], list[ConnectValue]]
    ) -> Chunk | None:
        """The next rows of a table."""
        try:
            return self._read(waiting, count, source)
        except TaskFailed as error:
            # A signal that was wrong must not stop the changes of all tables.
            _logger.warning("the incremental snapshot of %s ends here: %s", waiting.table, error)
            self.close()
            # Its first row may be in the log.
            self._window, self._closed, self.is_open = "", True, False
            return Chunk(waiting)

    def _read(self, waiting: Waiting, count: int, source: Callable[[TableId], list[ConnectValue]]) -> Chunk:
        dialect, table = self._server.dialect, waiting.id
        described = self._server.shape(table, self._server.table_columns(table))
        if not described.shape.key_names:
            raise TaskFailed(f"table {table} has no key")
        names = [name for name, _ in described.columns]
        keys = ", ".join(map(dialect.quote, described.shape.key_names))
        where = [f"({waiting.condition})"] if waiting.condition else []
        after = None if waiting.after is None else tuple(map(_from_json, waiting.after))
        if after is not None:
            # Parameters make a sign of each %.
            where = [one.replace("%", "%%") for one in where]
            where.append(f"({keys}) > ({', '.join(['%s'] * len(after))})")
        sql = (
            f"SELECT {', '.join(map(dialect.quote, names))} FROM {dialect.table(table)} "
            f"{'WHERE ' if where else ''}{' AND '.join(where)} ORDER BY {keys} LIMIT {count}"
        )
        self._window, self._closed, self.is_open = str(uuid.uuid4()), False, False
        with dialect.errors(f"cannot read {table}, or write into {self._signals}"):
            if self._connection is None:
                self._connection = dialect.connect()
                self._connection.autocommit(True)
            with self._connection.cursor() as cursor:
                self._mark(cursor, "open")
                cursor.execute(sql, after)
                rows = cursor.fetchall()
                self._mark(cursor, "close")
        at = source(table)
        chunk = Chunk(waiting, described.shape)
        for row in rows:
            values = described.row(dict(zip(names, row, strict=True)))
            chunk.changes[chunk.key(values)] = Change(described.shape, READ, None, values, at)
        if len(rows) == count:
            chunk.after = tuple(_as_json(rows[-1][names.index(one)]) for one in described.shape.key_names)
        return chunk

    def _mark(self, cursor: pymysql.cursors.Cursor, which: str) -> None:
        schema, _, name = self._signals.partition(".")
        table = self._server.dialect.table(TableId(name, schema))
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        given = (
            f"{self._window}-{which}",
            f"snapshot-window-{which}",
            f'{{"{which}WindowTimestamp": "{now}"}}',
        )
        cursor.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", given)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.err.Error):
                self._connection.close()
            self._connection = None


def _as_json(value: object) -> Json:
    """A value of a key, to be kept in an offset."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: value.hex()}
    if isinstance(value, decimal.Decimal | float | datetime.date | datetime.timedelta):
        return str(value)
    raise TaskFailed(f"a key of the type {type(value).__name__} cannot be kept in an offset")


def _from_json(value: Json) -> object:
    return bytes.fromhex(str(as_object(value, "after")[_BYTES])) if isinstance(value, dict) else value
