"""What a source of changes asks of PostgreSQL: settings, publication, slot, and the shapes of tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data import schema as schemas
from ottla.connect.databases.address import Address
from ottla.connect.databases.connection import Connection, SqlRow, SqlValue
from ottla.connect.databases.dialect import TableId
from ottla.connect.databases.postgres import Postgres
from ottla.connect.failures import Occupied, TaskFailed
from ottla.connect.sources.changes.envelope import TableShape, source_schema
from ottla.connect.sources.changes.keys import Choice
from ottla.connect.sources.changes.pg_types import PgType, pg_type

_logger = logging.getLogger(__name__)

_OPTIONAL_INT64: Final = schemas.optional(schemas.INT64)
SOURCE: Final = source_schema(
    "io.debezium.connector.postgresql.Source",
    [
        ("schema", schemas.STRING),
        ("table", schemas.STRING),
        ("txId", _OPTIONAL_INT64),
        ("lsn", _OPTIONAL_INT64),
        ("xmin", _OPTIONAL_INT64),
    ],
)


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table at one moment: the types of its columns, in order, and the shape of its records."""

    table: TableId
    names: tuple[str, ...]
    types: tuple[PgType | None, ...]
    shape: TableShape


def lsn_number(text: str) -> int:
    """A position in the log.

    >>> lsn_number("1/10")
    4294967312
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(number: int) -> str:
    """A position as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


class PgServer:
    """One connection for questions, beside the one that streams."""

    def __init__(self, values: ConfigValues) -> None:
        self._values = values
        self.dialect = Postgres(
            Address(
                "postgresql",
                values["database.dbname"],
                values["database.hostname"],
                values["database.port"],
                values["database.user"],
                values["database.password"] or None,
                {"sslmode": values["database.sslmode"]},
            )
        )
        self.choice = Choice(values)
        self.slot: str = values["slot.name"]
        self.publication: str = values["publication.name"]
        self.prefix: str = values["topic.prefix"]
        self._connection: Connection = None

    def ask(self, sql: str, values: Sequence[SqlValue] = ()) -> list[SqlRow]:
        """The rows of a query, outside of transactions."""
        with self.dialect.errors(f"{self.dialect.address} refuses a question"):
            if self._connection is None:
                self._connection = self.dialect.connect()
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                self.dialect.execute(cursor, sql, values)
                return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- what is there

    def check_settings(self) -> None:
        """TaskFailed with the statement that mends it."""
        if self.ask("SHOW wal_level") != [("logical",)]:
            raise TaskFailed(
                f"wal_level of {self.dialect.address} is not logical: run "
                "ALTER SYSTEM SET wal_level = logical, and restart PostgreSQL"
            )
        allowed = self.ask("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
        if allowed != [(True,)]:
            user = self.dialect.address.user
            raise TaskFailed(f"user {user} has no right to replicate: run ALTER ROLE {user} REPLICATION")

    def tables(self) -> list[TableId]:
        """The tables that the connector reads."""
        rows = self.ask(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1, 2"
        )
        return [one for one in (TableId(name, schema) for schema, name in rows) if self.wanted(one)]

    def wanted(self, table: TableId) -> bool:
        """Whether the connector reads a table."""
        included, excluded = self._values["schema.include.list"], self._values["schema.exclude.list"]
        if (included and table.schema not in included) or table.schema in excluded:
            return False
        return self.choice.table(table)

    def ensure_publication(self, tables: Sequence[TableId]) -> None:
        """Makes the publication unless it is there."""
        if self.ask("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication]):
            return
        mode = self._values["publication.autocreate.mode"]
        name = self.dialect.quote(self.publication)
        if mode == "disabled":
            raise TaskFailed(
                f"there is no publication {self.publication}: run CREATE PUBLICATION {name} FOR ALL TABLES"
            )
        listed = ", ".join(map(self.dialect.table, tables))
        what = "ALL TABLES" if mode == "all_tables" or not listed else f"TABLE {listed}"
        self.ask(f"CREATE PUBLICATION {name} FOR {what}")
        _logger.info("made the publication %s for %s", self.publication, what.lower())

    def has_slot(self) -> bool:
        """Whether the slot is there and can be used; an error says why not."""
        rows = self.ask(
            "SELECT plugin, active_pid, wal_status, database FROM pg_replication_slots WHERE slot_name = %s",
            [self.slot],
        )
        if not rows:
            return False
        plugin, pid, status, database = rows[0]
        if plugin != "pgoutput":
            raise TaskFailed(f"slot {self.slot} is one of {plugin}: drop it, or choose another slot.name")
        if database != self.dialect.address.database:
            raise TaskFailed(f"slot {self.slot} belongs to the database {database}: choose another slot.name")
        if status == "lost":
            raise TaskFailed(
                f"slot {self.slot} lost its log, because max_slot_wal_keep_size was reached: changes are missing. Run "
                f"SELECT pg_drop_replication_slot('{self.slot}'), reset the connector's offsets, and start it again"
            )
        if pid is not None:
            raise Occupied(
                f"slot {self.slot} is in use by process {pid} of PostgreSQL: only one reader can have it"
            )
        return True

    # -- shapes

    def describe_table(self, table: TableId) -> PgTable:
        """A table as it is now."""
        rows = self.ask(
            "SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE a.atttypid END, "
            "CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, a.attnotnull "
            "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [self.dialect.table(table)],
        )
        if not rows:
            raise TaskFailed(f"table {table} is gone while it was read: restart the connector")
        return self.shape_table(table, rows)

    def shape_table(self, table: TableId, rows: Sequence[SqlRow]) -> PgTable:
        """The shape of columns: name, type's number, modifier, and whether it may not be null."""
        keys = self.key_names(table)
        enums = self._labels([row[1] for row in rows])
        types: list[PgType | None] = []
        columns = []
        for name, oid, modifier, not_null in rows:
            found = pg_type(
                oid,
                modifier,
                self._values["decimal.handling.mode"],
                self._values["time.precision.mode"],
                enums,
            )
            if found is None or not (name in keys or self.choice.column(table, name)):
                types.append(None)
                continue
            if not (not_null or name in keys):
                found = found.nullable()
            types.append(found)
            columns.append((name, found.schema))
        shape = TableShape.of(f"{self.prefix}.{table}", columns, keys, SOURCE)
        return PgTable(table, tuple(row[0] for row in rows), tuple(types), shape)

    def key_names(self, table: TableId) -> list[str]:
        """The columns of the primary key, in order."""
        rows = self.ask(
            "SELECT a.attname FROM pg_index i "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)",
            [self.dialect.table(table)],
        )
        return [name for (name,) in rows]

    def not_null(self, table: TableId) -> set[str]:
        """The columns that may not be null."""
        rows = self.ask(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND attnotnull",
            [self.dialect.table(table)],
        )
        return {name for (name,) in rows}

    def _labels(self, oids: Sequence[int]) -> dict[int, str]:
        rows = self.ask(
            "SELECT enumtypid::int8, string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum "
            "WHERE enumtypid::int8 = ANY(%s) GROUP BY 1",
            [list(oids)],
        )
        return {int(oid): labels for oid, labels in rows}
