"""What a source of changes asks of MySQL or MariaDB: settings, rights, positions, snapshots, shapes of tables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pymysql
from pymysql.cursors import DictCursor

from ottla.connect.data import schema as schemas
from ottla.connect.databases.address import Address
from ottla.connect.databases.dialect import TableId
from ottla.connect.databases.mysql import MySql
from ottla.connect.databases.tls import tls_arguments
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.binlog import LogPosition
from ottla.connect.sources.changes.envelope import Row, TableShape, source_schema
from ottla.connect.sources.changes.keys import Choice, Names
from ottla.connect.sources.changes.mysql_defaults import Definitions, default_of, written_default
from ottla.connect.sources.changes.mysql_types import (
    LogColumn,
    MySqlType,
    TypeModes,
    column_of_table,
    mysql_type,
    nullable_type,
)

_SYSTEM: Final = ("mysql", "information_schema", "performance_schema", "sys")
_SETTINGS: Final = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
_RIGHT: Final = re.compile(r"GRANT (?P<rights>.*) ON \*\.\* TO")


def _source(connector: str) -> schemas.Schema:
    return source_schema(
        f"io.debezium.connector.{connector}.Source",
        [
            ("table", schemas.OPTIONAL_STRING),
            ("server_id", schemas.INT64),
            ("gtid", schemas.OPTIONAL_STRING),
            ("file", schemas.STRING),
            ("pos", schemas.INT64),
            ("row", schemas.INT32),
            ("thread", schemas.optional(schemas.INT64)),
            ("query", schemas.OPTIONAL_STRING),
        ],
    )


@dataclass(frozen=True, slots=True)
class MySqlTable:
    """A table at one moment: its columns that are read, and the shape of its records."""

    table: TableId
    columns: tuple[tuple[str, MySqlType], ...]
    shape: TableShape

    def row(self, values: Mapping[str, object]) -> Row:
        """A row as Connect has it."""
        found: Row = []
        for name, kind in self.columns:
            value = values.get(name)
            if value is None and (kind.schema.optional or kind.schema.type is schemas.Type.STRUCT):
                found.append(None)
            elif kind.schema.optional and isinstance(value, str) and value.startswith("0000-00-00"):
                # The zero date of a column that may be null is null, as in Debezium.
                found.append(None)
            else:
                found.append(kind.convert(value))
        return found


class MySqlServer:
    """One connection for questions, beside those of the snapshot and the log."""

    def __init__(self, values: Mapping[str, object], connector: str) -> None:
        port = values["database.port"]
        assert isinstance(port, int)
        self.dialect = MySql(
            Address(
                "mysql",
                "",
                str(values["database.hostname"]),
                port,
                str(values["database.user"]),
                str(values["database.password"] or "") or None,
            )
        )
        self.dialect.tls = tls_arguments(values)
        self.connector = connector
        self.prefix = str(values["topic.prefix"])
        self.choice = Choice(values)
        self._databases = Names.of(values, "database")
        self._modes = TypeModes(
            str(values["decimal.handling.mode"]),
            str(values["time.precision.mode"]),
            str(values["bigint.unsigned.handling.mode"]),
            str(values["binary.handling.mode"]),
        )
        self.source = _source(connector)
        self._connection: pymysql.Connection | None = None
        self._defined: dict[TableId, Definitions] = {}

    @property
    def login(self) -> dict[str, object]:
        """What a connection to the log needs. It has the password: it must not be shown."""
        at = self.dialect.address
        return {
            "host": at.host,
            "port": at.port,
            "user": at.user,
            "password": at.password or "",
            "connect_timeout": 10,
            **self.dialect.tls,
        }

    def ask(self, sql: str, values: Sequence[object] = ()) -> list[dict[str, object]]:
        """The rows of a query, by the names of its columns in small letters."""
        with self.dialect.errors(f"{self.dialect.address} refuses a question"):
            try:
                if self._connection is None:
                    self._connection = self.dialect.connect()
                    self._connection.autocommit(True)
                with self._connection.cursor(DictCursor) as cursor:
                    self.dialect.execute(cursor, sql, values)
                    return [{name.lower(): one for name, one in row.items()} for row in cursor.fetchall()]
            except pymysql.err.OperationalError:
                # The server closes connections that are quiet for long: the next question connects again.
                self.close()
                raise

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.err.Error):
                self._connection.close()
            self._connection = None

    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB, whose GTIDs and snapshots differ."""
        return "mariadb" in str(self.ask("SELECT VERSION() AS version")[0]["version"]).lower()

    # -- what is there

    def check_settings(self) -> None:
        """TaskFailed with the statement that mends it."""
        at = self.dialect.address
        asked = ", ".join(f"'{name}'" for name in ("log_bin", *_SETTINGS))
        rows = self.ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({asked})")
        found = {str(row["variable_name"]).lower(): str(row["value"]).upper() for row in rows}
        if found.get("log_bin") not in ("ON", "1"):
            raise TaskFailed(
                f"the binary log of {at} is off: set log_bin and server_id in the server's file, and restart it"
            )
        for name, wanted in _SETTINGS.items():
            if name not in found:
                raise TaskFailed(f"{at} has no {name}: changes need MySQL from 8.0.14 or MariaDB from 10.5")
            if found[name] != wanted:
                raise TaskFailed(
                    f"{name} of {at} is {found[name]}: run SET GLOBAL {name} = '{wanted}', and write {name}={wanted} "
                    "into the server's file so that it stays. Sessions that are open keep the old value"
                )
        self._check_rights()

    def _check_rights(self) -> None:
        rights = set()
        for row in self.ask("SHOW GRANTS"):
            if match := _RIGHT.match(str(next(iter(row.values())))):
                rights |= {one.strip().upper() for one in match["rights"].split(",")}
        if not rights & {"ALL PRIVILEGES", "REPLICATION SLAVE", "REPLICATION REPLICA"}:
            user = self.dialect.address.user
            raise TaskFailed(
                f"user {user} has no right to read the binary log: run GRANT SELECT, RELOAD, SHOW DATABASES, "
                f"REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'"
            )

    def tables(self) -> list[TableId]:
        """The tables that the connector reads."""
        rows = self.ask(
            "SELECT table_schema AS place, table_name AS name FROM information_schema.tables "
            "WHERE table_type = 'BASE TABLE' ORDER BY 1, 2"
        )
        found = (TableId(str(row["name"]), str(row["place"])) for row in rows)
        return [one for one in found if self.wanted(one)]

    def wanted(self, table: TableId) -> bool:
        """Whether the connector reads a table."""
        if table.schema in _SYSTEM or not self._databases.chosen(table.schema):
            return False
        return self.choice.table(table)

    def has_table(self, table: TableId) -> bool:
        """Whether a table is there."""
        return bool(
            self.ask(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
                [table.schema, table.name],
            )
        )

    def rows_of(self, table: TableId) -> int:
        """How many rows a table has, as the server estimates it."""
        rows = self.ask(
            "SELECT table_rows AS found FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            [table.schema, table.name],
        )
        return int(str(rows[0]["found"] or 0)) if rows else 0

    def reads_database(self, name: str) -> bool:
        """Whether the connector may read tables of a database."""
        return name not in _SYSTEM and self._databases.chosen(name)

    def has_file(self, file: str) -> bool:
        """Whether the server still has a file of its log."""
        return any(row["log_name"] == file for row in self.ask("SHOW BINARY LOGS"))

    def end_of_log(self) -> LogPosition:
        """Where the log ends now."""
        try:
            rows = self.ask("SHOW BINARY LOG STATUS")
        except TaskFailed:
            rows = self.ask("SHOW MASTER STATUS")
        if not rows:
            raise TaskFailed(f"the binary log of {self.dialect.address} is off: set log_bin, and restart it")
        at = LogPosition(str(rows[0]["file"]), int(str(rows[0]["position"])))
        if self.is_mariadb():
            return self.with_gtids(at)
        executed = str(rows[0].get("executed_gtid_set") or "")
        return LogPosition(at.file, at.at, "".join(executed.split()))

    def with_gtids(self, at: LogPosition) -> LogPosition:
        """A position of MariaDB with the GTIDs before it."""
        rows = self.ask("SELECT BINLOG_GTID_POS(%s, %s) AS gtids", [at.file, at.at])
        return LogPosition(at.file, at.at, str(rows[0]["gtids"] or ""))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """No writes: MySQL has no other way to know a snapshot's place in the log."""
        self.ask("FLUSH TABLES WITH READ LOCK")
        try:
            yield
        finally:
            self.ask("UNLOCK TABLES")

    def open_snapshot(self) -> tuple[pymysql.Connection, LogPosition]:
        """A connection that sees all tables as of one place in the log."""
        with self.dialect.errors("cannot begin a snapshot"):
            connection = self.dialect.connect()
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                if not self.is_mariadb():
                    with self._locked():
                        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                        return connection, self.end_of_log()
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                status = {str(name).lower(): value for name, value in cursor.fetchall()}
        at = LogPosition(str(status["binlog_snapshot_file"]), int(status["binlog_snapshot_position"]))
        return connection, self.with_gtids(at)

    # -- shapes

    def table_columns(self, table: TableId) -> tuple[LogColumn, ...]:
        """The columns of a table as it is now."""
        rows = self.ask(
            "SELECT c.column_name AS column_name, c.data_type AS data_type, c.column_type AS column_type, "
            "c.is_nullable AS is_nullable, c.numeric_precision AS numeric_precision, "
            "c.numeric_scale AS numeric_scale, c.character_octet_length AS character_octet_length, "
            "c.datetime_precision AS datetime_precision, k.ordinal_position AS key_place "
            "FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k "
            "ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name "
            "AND k.constraint_name = 'PRIMARY' WHERE c.table_schema = %s AND c.table_name = %s "
            "ORDER BY c.ordinal_position",
            [table.schema, table.name],
        )
        if not rows:
            raise TaskFailed(f"table {table} is gone while it was read: restart the connector")
        return tuple(map(column_of_table, rows))

    def forget_definitions(self) -> None:
        """Tables may have changed: their columns are looked up again."""
        self._defined.clear()

    def shape(self, table: TableId, columns: Sequence[LogColumn]) -> MySqlTable:
        """The shape of a table with these columns."""
        if any(not one.name for one in columns):
            raise TaskFailed(
                f"the log has no names of the columns of {table}, because they were written before "
                "binlog_row_metadata was FULL: reset the connector's offsets for a new snapshot"
            )
        definitions = self._definitions(table)
        primary = [one.name for one in sorted(columns, key=lambda one: one.key) if one.key]
        keys = primary or definitions.unique
        types: list[tuple[str, MySqlType]] = []
        fields: list[tuple[str, schemas.Schema]] = []
        for one in columns:
            found = mysql_type(definitions.unhidden(one), self._modes)
            if found is None or not (one.name in keys or self.choice.column(table, one.name)):
                continue
            if one.nullable or found.always_nullable:
                found = nullable_type(found)
            types.append((one.name, found))
            default = default_of(found, definitions.default(one.name), nullable=one.nullable)
            fields.append(
                (
                    one.name,
                    found.schema if default is None else schemas.changed(found.schema, default=default),
                )
            )
        known = {name for name, _ in types}
        shape = TableShape.of(
            f"{self.prefix}.{table}", fields, [one for one in keys if one in known], self.source
        )
        return MySqlTable(table, tuple(types), shape)

    def unique_columns(self, table: TableId) -> list[str]:
        """The columns of the first unique index, which stands for a primary key that is not there."""
        return list(self._definitions(table).unique)

    def _definitions(self, table: TableId) -> Definitions:
        """What the log does not say about a table's columns: some types, defaults, a unique index."""
        if table not in self._defined:
            rows = self.ask(
                "SELECT column_name AS name, data_type AS kind, column_default AS written, extra AS extra "
                "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                [table.schema, table.name],
            )
            indexes = self.ask(
                "SELECT index_name AS found, column_name AS name FROM information_schema.statistics "
                "WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index",
                [table.schema, table.name],
            )
            unique = [str(one["name"]) for one in indexes if one["found"] == indexes[0]["found"]]
            self._defined[table] = Definitions(
                {str(row["name"]): str(row["kind"]).lower() for row in rows},
                {str(row["name"]): written_default(row, mariadb=self.is_mariadb()) for row in rows},
                unique,
            )
        return self._defined[table]
