"""What a source of changes asks of PostgreSQL: settings, publication, slot, and the shapes of tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import changed
from ottla.connect.databases.address import Address
from ottla.connect.databases.connection import Connection, SqlRow, SqlValue
from ottla.connect.databases.dialect import TableId
from ottla.connect.databases.postgres import Postgres
from ottla.connect.failures import Occupied, TaskFailed
from ottla.connect.sources.changes.envelope import Row, TableShape, source_schema
from ottla.connect.sources.changes.keys import Choice
from ottla.connect.sources.changes.pg_types import (
    OwnType,
    PgType,
    TypeModes,
    default_of,
    pg_type,
    row_parser,
    unavailable,
)
from ottla.connect.sources.changes.pgoutput import UNCHANGED, Values

_logger = logging.getLogger(__name__)

_OPTIONAL_INT64: Final = schemas.optional(schemas.INT64)
_FIRST_OWN: Final = 16_384
"""The numbers of PostgreSQL's own types are below."""
SOURCE: Final = source_schema(
    "io.debezium.connector.postgresql.Source",
    [
        ("schema", schemas.STRING),
        ("table", schemas.STRING),
        ("txId", _OPTIONAL_INT64),
        ("lsn", _OPTIONAL_INT64),
        ("xmin", _OPTIONAL_INT64),
        ("origin", schemas.OPTIONAL_STRING),
        ("origin_lsn", _OPTIONAL_INT64),
    ],
)


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table at one moment: the types of its columns, in order, and the shape of its records."""

    table: TableId
    names: tuple[str, ...]
    types: tuple[PgType | None, ...]
    shape: TableShape
    parse: Callable[[Values], Row]
    """The values of a row that is complete."""
    name: str
    """The table's name with its schema."""
    wanted: bool
    """Whether its changes are read; of the table of signals, they may only be followed."""

    def row(self, values: Values, old: Row | None) -> Row:
        """The values of a row that the stream sent. A large one that did not change is that of the old row."""
        if UNCHANGED not in values:
            return self.parse(values)
        row: Row = []
        append = row.append
        for kind, value in zip(self.types, values, strict=True):
            if kind is None:
                continue
            if value is None:
                append(None)
            elif value is UNCHANGED:
                append(old[len(row)] if old is not None else unavailable(kind.schema))
            else:
                append(kind.parse(value))
        return row


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

    def has_table(self, table: TableId) -> bool:
        """Whether a table is there."""
        return self.ask("SELECT to_regclass(%s) IS NOT NULL", [self.dialect.table(table)]) == [(True,)]

    def rows_of(self, table: TableId) -> int:
        """How many rows a table has, estimated: the server counts when it analyzes a table."""
        name = self.dialect.table(table)
        rows = self.ask(
            "SELECT coalesce(sum(CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100 "
            "ELSE c.reltuples END), 0)::int8 FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = to_regclass(%s) "
            "OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%s))))",
            [name, name],
        )
        return int(rows[0][0])

    # -- shapes

    def describe_table(self, table: TableId) -> PgTable:
        """A table as it is now."""
        rows = self.ask(
            "SELECT attname, atttypid::int8, atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self.dialect.table(table)],
        )
        if not rows:
            raise TaskFailed(f"table {table} is gone while it was read: restart the connector")
        return self.shape_table(table, rows)

    def shape_table(self, table: TableId, rows: Sequence[SqlRow]) -> PgTable:
        """The shape of columns: name, type's number and modifier."""
        keys = self.key_names(table)
        about = self._about_columns(table)
        modes = TypeModes(
            self._values["decimal.handling.mode"],
            self._values["time.precision.mode"],
            self._own_types({int(row[1]) for row in rows}),
        )
        types: list[PgType | None] = []
        columns = []
        for name, oid, modifier in rows:
            found = pg_type(oid, modifier, modes)
            if found is None or not (name in keys or self.choice.column(table, name)):
                types.append(None)
                continue
            not_null, expression = about.get(name, (False, ""))
            default = default_of(found, expression)
            if not not_null:
                found = found.nullable()
            types.append(found)
            columns.append(
                (name, found.schema if default is None else changed(found.schema, default=default))
            )
        known = {name for name, _ in columns}
        shape = TableShape.of(
            f"{self.prefix}.{table}", columns, [one for one in keys if one in known], SOURCE
        )
        names = tuple(row[0] for row in rows)
        return PgTable(table, names, tuple(types), shape, row_parser(types), str(table), self.wanted(table))

    def key_names(self, table: TableId) -> list[str]:
        """The columns of the primary key, in order; without one, those of the first unique index by name."""
        rows = self.ask(
            "SELECT c.relname, i.indisprimary, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indexprs IS NULL AND i.indpred IS NULL "
            "ORDER BY i.indisprimary DESC, c.relname, array_position(i.indkey::int2[], a.attnum)",
            [self.dialect.table(table)],
        )
        return [name for index, _, name in rows if index == rows[0][0]]

    def _about_columns(self, table: TableId) -> dict[str, tuple[bool, str]]:
        """Whether each column may not be null, and the text of its default."""
        rows = self.ask(
            "SELECT a.attname, a.attnotnull, CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END "
            "FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0",
            [self.dialect.table(table)],
        )
        return {name: (bool(not_null), expression or "") for name, not_null, expression in rows}

    def _own_types(self, oids: set[int]) -> dict[int, OwnType]:
        """The types among these that are not built in, with those that they are made of."""
        found: dict[int, OwnType] = {}
        wanted = {one for one in oids if one >= _FIRST_OWN}
        while wanted:
            rows = self.ask(
                "SELECT t.oid::int8, t.typname, t.typtype, t.typbasetype::int8, t.typtypmod, t.typelem::int8, "
                "(SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid) "
                "FROM pg_type t WHERE t.oid::int8 = ANY(%s)",
                [list(wanted)],
            )
            for oid, name, kind, base, modifier, element, labels in rows:
                found[int(oid)] = OwnType(name, kind, int(base), modifier, int(element), labels or "")
            made_of = {part for one in found.values() for part in (one.base, one.element)}
            wanted = {one for one in made_of if one >= _FIRST_OWN and one not in found}
        return found
