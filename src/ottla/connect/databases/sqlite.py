"""SQLite. Its columns have no fixed types: the declared type decides, as its documentation on affinity says."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Type
from ottla.connect.databases.connection import Connection, Cursor, SqlRow, SqlValue
from ottla.connect.databases.dialect import Column, Dialect, TableId, column_schema
from ottla.connect.failures import TaskFailed

_BUSY_S: Final = 5.0
_TIME: Final = "%Y-%m-%d %H:%M:%f"


class Sqlite(Dialect):
    """A file of SQLite."""

    mark = "?"
    library = ("sqlite3", "connect")
    types: ClassVar[Mapping[Type, str]] = {
        **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN), "INTEGER"),
        Type.FLOAT32: "REAL",
        Type.FLOAT64: "REAL",
        Type.STRING: "TEXT",
        Type.BYTES: "BLOB",
    }
    logical: ClassVar[Mapping[str, str]] = {
        schemas.DATE: "DATE",
        schemas.TIME: "TIME",
        schemas.TIMESTAMP: "TIMESTAMP",
    }

    def _connect(self) -> Connection:
        import sqlite3

        path = self.address.database
        if not os.path.exists(path) and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise TaskFailed(f"cannot open {path}: its folder does not exist")
        return sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)

    def is_error(self, error: BaseException) -> bool:
        import sqlite3

        return isinstance(error, sqlite3.Error)

    def passes(self, error: BaseException) -> bool:
        return "locked" in str(error) or "busy" in str(error)

    def tables(self, connection: Connection, types: Sequence[str]) -> list[TableId]:
        wanted = [one.lower() for one in types]
        marks = ", ".join("?" * len(wanted))
        rows = connection.execute(
            f"SELECT name FROM sqlite_master WHERE type IN ({marks}) AND name NOT LIKE 'sqlite_%' ORDER BY name",
            wanted,
        )
        return [TableId(name) for (name,) in rows]

    def columns(self, connection: Connection, table: TableId) -> list[Column]:
        rows = connection.execute(f"PRAGMA table_info({self.quote(table.name)})").fetchall()
        keys = sum(1 for row in rows if row[5])
        found = []
        for _, name, kind, not_null, _, key in rows:
            numbered = bool(key) and keys == 1 and kind.upper() == "INTEGER"
            schema = column_schema(_declared(kind), nullable=not (not_null or numbered))
            found.append(Column(name, schema, bool(key), numbered, kind))
        return found

    def described(self, cursor: Cursor, first: SqlRow | None) -> list[Column]:
        values = first or [None] * len(cursor.description)
        return [
            Column(one[0], schemas.optional(_of_value(value)))
            for one, value in zip(cursor.description, values, strict=True)
        ]

    def execute(self, cursor: Cursor, sql: str, values: Sequence[SqlValue] = ()) -> None:
        cursor.execute(sql, tuple(values))

    def now(self, connection: Connection) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    def time_sql(self, expression: str) -> str:
        """Text in one form, whether the column holds text or milliseconds."""
        return (
            f"(CASE WHEN typeof({expression}) = 'integer' "
            f"THEN strftime('{_TIME}', {expression} / 1000.0, 'unixepoch') ELSE strftime('{_TIME}', {expression}) END)"
        )

    def time_parameter(self, value: datetime.datetime, zone: datetime.tzinfo) -> str:
        return value.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    def time_value(self, value: SqlValue, zone: datetime.tzinfo) -> datetime.datetime:
        if isinstance(value, int | float):
            return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        try:
            found = datetime.datetime.fromisoformat(str(value))
        except ValueError:
            raise TaskFailed(
                f"{value!r} in {self.address} is not a time: write it as 2026-01-31 12:00:00.000"
            ) from None
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(datetime.UTC)

    def value(self, schema: Schema, value: SqlValue, zone: datetime.tzinfo) -> SqlValue:
        if value is None:
            return None
        if schema.name == schemas.DATE:
            return self.time_value(value, zone).date() if isinstance(value, int) else _date(value)
        if schema.type in (Type.FLOAT32, Type.FLOAT64) and isinstance(value, int):
            return float(value)
        if schema.type is Type.BYTES and isinstance(value, str):
            return value.encode()
        if schema.type is Type.INT64 and schema.name is None and not isinstance(value, int):
            raise TaskFailed(
                f"{value!r} in {self.address} is no whole number, though its column is declared so"
            )
        return super().value(schema, value, zone)

    def upsert(self, table: TableId, keys: Sequence[str], others: Sequence[str]) -> str:
        listed = ", ".join(map(self.quote, keys))
        sets = ", ".join(f"{self.quote(one)} = excluded.{self.quote(one)}" for one in others)
        return f"{self.insert(table, [*keys, *others])} ON CONFLICT ({listed}) DO " + (
            f"UPDATE SET {sets}" if sets else "NOTHING"
        )

    def decimal_type(self, scale: int) -> str:
        return "NUMERIC"

    def parameter(self, schema: Schema | None, value: SqlValue) -> SqlValue:
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value


def _date(value: SqlValue) -> datetime.date:
    try:
        return datetime.date.fromisoformat(str(value)[:10])
    except ValueError:
        raise TaskFailed(f"{value!r} is not a date: write it as 2026-01-31") from None


def _declared(kind: str) -> Schema:
    """The schema of a declared type."""
    name = kind.upper()
    if "INT" in name:
        return schemas.INT64
    if "BOOL" in name:
        return schemas.BOOLEAN
    if "TIMESTAMP" in name or "DATETIME" in name:
        return schemas.TIMESTAMP_SCHEMA
    if name == "DATE":
        return schemas.DATE_SCHEMA
    if "BLOB" in name:
        return schemas.BYTES
    if any(one in name for one in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")):
        return schemas.FLOAT64
    return schemas.STRING


def _of_value(value: SqlValue) -> Schema:
    found = {bool: schemas.BOOLEAN, int: schemas.INT64, float: schemas.FLOAT64, bytes: schemas.BYTES}
    return found.get(type(value), schemas.STRING)
