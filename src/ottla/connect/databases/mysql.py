"""MySQL and MariaDB through PyMySQL."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Type
from ottla.connect.databases.connection import Connection, Cursor, SqlRow, SqlValue
from ottla.connect.databases.dialect import Column, Dialect, TableId, column_schema
from ottla.connect.failures import TaskFailed

_PASSING: Final = frozenset(
    (1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 2002, 2003, 2006, 2013, 2055)
)

_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit")
_WHOLE: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_SIGNED: Final = (schemas.INT8, schemas.INT16, schemas.INT32, schemas.INT32, schemas.INT64)
_UNSIGNED: Final = (schemas.INT16, schemas.INT32, schemas.INT32, schemas.INT64, schemas.decimal_schema(0))
_BINARY: Final = 63
"""The character set of bytes."""


class MySql(Dialect):
    """A database of MySQL or MariaDB."""

    quotes = "`"
    text_key = "VARCHAR(255)"
    library = ("pymysql", "mysql")
    types: ClassVar[Mapping[Type, str]] = {
        Type.INT8: "TINYINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INT",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "FLOAT",
        Type.FLOAT64: "DOUBLE",
        Type.BOOLEAN: "TINYINT",
        Type.STRING: "TEXT",
        Type.BYTES: "VARBINARY(1024)",
    }
    logical: ClassVar[Mapping[str, str]] = {
        schemas.DATE: "DATE",
        schemas.TIME: "TIME(3)",
        schemas.TIMESTAMP: "DATETIME(3)",
    }

    tls: Mapping[str, object] = {}
    """Arguments of the driver for TLS (`tls.tls_arguments`)."""

    def _connect(self) -> Connection:
        import pymysql

        at = self.address
        connection = pymysql.connect(
            host=at.host,
            port=at.port,
            user=at.user,
            password=at.password or "",
            database=at.database or None,
            charset="utf8mb4",
            connect_timeout=10,
            **self.tls,
        )
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
        return connection

    def is_error(self, error: BaseException) -> bool:
        import pymysql

        return isinstance(error, pymysql.err.Error)

    def _words(self, error: BaseException) -> str:
        return str(error.args[1]) if len(error.args) > 1 else str(error)

    def passes(self, error: BaseException) -> bool:
        return bool(error.args) and error.args[0] in _PASSING

    def tables(self, connection: Connection, types: Sequence[str]) -> list[TableId]:
        kinds = ["BASE TABLE" if one.upper() == "TABLE" else one.upper() for one in types]
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_schema, table_name FROM information_schema.tables "
                "WHERE table_type IN %s AND table_schema = DATABASE() ORDER BY 1, 2",
                (kinds,),
            )
            return [TableId(name, schema) for schema, name in cursor.fetchall()]

    def columns(self, connection: Connection, table: TableId) -> list[Column]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, data_type, column_type, is_nullable, column_key, extra, numeric_scale "
                "FROM information_schema.columns WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s "
                "ORDER BY ordinal_position",
                (table.schema or None, table.name),
            )
            return [_column(*row) for row in cursor.fetchall()]

    def described(self, cursor: Cursor, first: SqlRow | None) -> list[Column]:
        fields = cursor._result.fields
        found = []
        for one in fields:
            schema = _of_field(one.type_code, one.charsetnr == _BINARY, one.scale)
            found.append(Column(one.name, schemas.optional(schema)))
        return found

    def now(self, connection: Connection) -> datetime.datetime:
        with connection.cursor() as cursor:
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            found: datetime.datetime = cursor.fetchone()[0]
        connection.rollback()
        return found.replace(tzinfo=datetime.UTC)

    @contextlib.contextmanager
    def streaming(self, connection: Connection, sql: str, values: Sequence[SqlValue]) -> Iterator[Cursor]:
        """A cursor that leaves the rest of the result on the server."""
        from pymysql.cursors import SSCursor

        cursor = connection.cursor(SSCursor)
        try:
            self.execute(cursor, sql, values)
            yield cursor
        finally:
            cursor.close()
            connection.rollback()

    def value(self, schema: Schema, value: SqlValue, zone: datetime.tzinfo) -> SqlValue:
        if schema.name == schemas.TIME and isinstance(value, datetime.timedelta):
            if not datetime.timedelta() <= value < datetime.timedelta(days=1):
                raise TaskFailed(f"the time {value} of {self.address} is not within a day")
            return (datetime.datetime.min + value).time()
        return super().value(schema, value, zone)

    def upsert(self, table: TableId, keys: Sequence[str], others: Sequence[str]) -> str:
        changed = others or keys[:1]
        sets = ", ".join(f"{self.quote(one)} = VALUES({self.quote(one)})" for one in changed)
        return f"{self.insert(table, [*keys, *others])} ON DUPLICATE KEY UPDATE {sets}"

    def decimal_type(self, scale: int) -> str:
        return f"DECIMAL(65,{min(scale, 30)})"

    def parameter(self, schema: Schema | None, value: SqlValue) -> SqlValue:
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value


def _column(
    name: str, kind: str, full: str, nullable: str, key: str, extra: str, scale: int | None
) -> Column:
    schema = column_schema(_schema(kind.lower(), full.lower(), scale), nullable=nullable == "YES")
    return Column(name, schema, key == "PRI", "auto_increment" in extra, full)


def _schema(kind: str, full: str, scale: int | None) -> Schema:
    if kind in _WHOLE:
        return (_UNSIGNED if "unsigned" in full else _SIGNED)[_WHOLE.index(kind)]
    if kind in ("decimal", "numeric"):
        return schemas.decimal_schema(scale or 0)
    found = {
        "float": schemas.FLOAT32,
        "double": schemas.FLOAT64,
        "date": schemas.DATE_SCHEMA,
        "time": schemas.TIME_SCHEMA,
        "datetime": schemas.TIMESTAMP_SCHEMA,
        "timestamp": schemas.TIMESTAMP_SCHEMA,
        "year": schemas.INT32,
    }
    return found.get(kind) or (schemas.BYTES if kind in _BYTES else schemas.STRING)


def _of_field(code: int, binary: bool, scale: int) -> Schema:
    """The schema of a result's column, by the protocol's number of its type."""
    names = {
        1: "tinyint",
        2: "smallint",
        3: "int",
        8: "bigint",
        9: "mediumint",
        4: "float",
        5: "double",
        0: "decimal",
        246: "decimal",
        10: "date",
        11: "time",
        12: "datetime",
        7: "timestamp",
        13: "year",
        16: "bit",
    }
    fallback = "blob" if binary and code in (249, 250, 251, 252, 253, 254) else "text"
    return _schema(names.get(code, fallback), "", scale)
