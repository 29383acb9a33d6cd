"""Chunks of a PostgreSQL table for an incremental snapshot, read beside the log without locks or writes to tables.

The snapshot of the query says which transactions the rows show. The log is then read up to a message that was written
behind the query: all of those transactions are before it. Changes of later ones replace rows of the chunk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.connect.data.schema import ConnectValue
from ottla.connect.databases.connection import Connection
from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.envelope import READ, Change
from ottla.connect.sources.changes.pg_server import PgServer, PgTable, lsn_number
from ottla.connect.sources.changes.signals import Chunk, Waiting

_logger = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
_XID: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Visible:
    """Which transactions a query saw.

    >>> seen = Visible.of("10:20:12,15")
    >>> [seen.includes(one) for one in (9, 12, 13, 20)]
    [True, False, True, False]
    """

    end: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Visible:
        """From the text of pg_current_snapshot()."""
        _, end, running = text.split(":")
        return cls(int(end), frozenset(int(one) for one in running.split(",") if one))

    def includes(self, xid: int) -> bool:
        """Whether the query saw a transaction; the log has the lower 32 bits of its number."""
        full = self.end - (self.end - xid) % _XID
        if self.end - full > _XID // 2:
            full += _XID
        return full < self.end and full not in self.running


class PgChunks:
    """Reads chunks over a connection of their own."""

    def __init__(self, server: PgServer) -> None:
        self._server = server
        self._connection: Connection = None
        self._met: deque[int] = deque(maxlen=_REMEMBERED)
        self.passed_at = 0
        """The log was read far enough for the last chunk where it is at this position."""

    def met(self, xid: int) -> None:
        """A transaction was read from the log."""
        self._met.append(xid)

    def read(
        self, waiting: Waiting, count: int, source: Callable[[TableId], list[ConnectValue]]
    ) -> Chunk | None:
        """The next rows of a table; None if a transaction that is in Kafka is not seen by queries yet."""
        try:
            described = self._server.describe_table(waiting.id)
            if not described.shape.key_names:
                raise TaskFailed(f"table {waiting.table} has no key")
            visible, texts = self._query(waiting, described, count)
        except TaskFailed as error:
            # A signal that was wrong must not stop the changes of all tables.
            _logger.warning("the incremental snapshot of %s ends here: %s", waiting.table, error)
            self.close()
            self.passed_at = 0
            return Chunk(waiting)
        if not all(map(visible.includes, self._met)):
            return None
        found = self._server.ask("SELECT pg_logical_emit_message(true, 'ottla', 'chunk')::text")
        self.passed_at = lsn_number(found[0][0])
        kinds = [(name, kind) for name, kind in zip(described.names, described.types, strict=True) if kind]
        at = source(waiting.id)
        chunk = Chunk(waiting, described.shape, includes=visible.includes)
        for row in texts:
            pairs = zip(kinds, row, strict=True)
            values = [None if text is None else kind.parse(text) for (_, kind), text in pairs]
            chunk.changes[chunk.key(values)] = Change(described.shape, READ, None, values, at)
        if len(texts) == count:
            names = [name for name, _ in kinds]
            chunk.after = tuple(texts[-1][names.index(one)] for one in described.shape.key_names)
        return chunk

    def _query(
        self, waiting: Waiting, described: PgTable, count: int
    ) -> tuple[Visible, list[tuple[str | None, ...]]]:
        """What a query saw, and its rows as texts."""
        dialect, after = self._server.dialect, waiting.after
        names = [one for one, kind in zip(described.names, described.types, strict=True) if kind is not None]
        keys = ", ".join(map(dialect.quote, described.shape.key_names))
        where = [f"({waiting.condition})"] if waiting.condition else []
        if after is not None:
            # Parameters make a sign of each %.
            where = [one.replace("%", "%%") for one in where]
            where.append(f"({keys}) > ({', '.join(['%s'] * len(after))})")
        sql = (
            f"SELECT {', '.join(map(dialect.quote, names))} FROM {dialect.table(waiting.id)} "
            f"{'WHERE ' if where else ''}{' AND '.join(where)} ORDER BY {keys} LIMIT {count}"
        )
        with dialect.errors(f"cannot read {waiting.table}"):
            if self._connection is None:
                self._connection = dialect.connect_for_texts()
            with self._connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SELECT pg_current_snapshot()::text")
                visible = Visible.of(cursor.fetchone()[0])
                cursor.execute(sql, after)
                texts = cursor.fetchall()
            self._connection.rollback()
        return visible, texts

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
