"""What connectors need of a database: connections, tables, columns, and its form of SQL.

Each kind has a module of its own, which imports its driver when a connection is made.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Type
from ottla.connect.databases.address import Address
from ottla.connect.databases.connection import Connection, Cursor, SqlRow, SqlValue
from ottla.connect.failures import ConnectError, Retriable, TaskFailed

FETCH_ROWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class TableId:
    """A table. `schema` is empty where the database has none."""

    name: str
    schema: str = ""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its Connect schema; `schema` is None for types that Connect does not have."""

    name: str
    schema: Schema | None
    key: bool = False
    generated: bool = False
    """Whether the database numbers the rows by it."""
    type_name: str = ""


def column_schema(base: Schema, *, nullable: bool) -> Schema:
    """The schema of a column that may be null, or may not."""
    return schemas.optional(base) if nullable else base


class Dialect(ABC):
    """One database."""

    mark: ClassVar[str] = "%s"
    """The placeholder of a parameter."""
    quotes: ClassVar[str] = '"'
    text_key: ClassVar[str] = "TEXT"
    """The type of text in a primary key."""
    types: ClassVar[Mapping[Type, str]]
    logical: ClassVar[Mapping[str, str]]
    library: ClassVar[tuple[str, str]]
    """The driver's module, and the extra that brings it."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def quote(self, name: str) -> str:
        """A name in SQL."""
        return f"{self.quotes}{name.replace(self.quotes, self.quotes * 2)}{self.quotes}"

    def table(self, table: TableId) -> str:
        """A table in SQL."""
        named = self.quote(table.name)
        return f"{self.quote(table.schema)}.{named}" if table.schema else named

    def connect(self) -> Connection:
        """A connection; Retriable if the database cannot be reached."""
        try:
            with self.errors(f"cannot connect to {self.address}"):
                return self._connect()
        except ModuleNotFoundError as error:
            module, extra = self.library
            raise TaskFailed(
                f"{self.address.kind} needs the library {error.name or module}: pip install 'ottla[{extra}]'"
            ) from None

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turns the driver's errors into ours: those that pass by themselves are Retriable."""
        try:
            yield
        except (ConnectError, ModuleNotFoundError):
            raise
        except Exception as error:
            if not self.is_error(error):
                raise
            words = " ".join(self._words(error).split())
            kind = Retriable if self.passes(error) else TaskFailed
            raise kind(f"{doing}: {words}") from error

    @abstractmethod
    def _connect(self) -> Connection: ...

    @abstractmethod
    def is_error(self, error: BaseException) -> bool:
        """Whether an error is one of the driver."""

    def _words(self, error: BaseException) -> str:
        return str(error)

    @abstractmethod
    def passes(self, error: BaseException) -> bool:
        """Whether an error of the driver is likely to pass by itself."""

    @abstractmethod
    def tables(self, connection: Connection, types: Sequence[str]) -> list[TableId]:
        """All tables of the user, in order."""

    @abstractmethod
    def columns(self, connection: Connection, table: TableId) -> list[Column]:
        """The columns of a table, in order; empty if there is no such table."""

    @abstractmethod
    def described(self, cursor: Cursor, first: SqlRow | None) -> list[Column]:
        """The columns of a query's result; `first` is its first row."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime.datetime:
        """The database's own time, in UTC."""

    def time_sql(self, expression: str) -> str:
        """A timestamp column as it can be compared with parameters of `time_parameter`."""
        return expression

    def time_parameter(self, value: datetime.datetime, zone: datetime.tzinfo) -> SqlValue:
        """A time in UTC as a parameter; columns without a zone are in `zone`."""
        return value.astimezone(zone).replace(tzinfo=None)

    def time_value(self, value: SqlValue, zone: datetime.tzinfo) -> datetime.datetime:
        """What a query gave for `time_sql`, in UTC."""
        found: datetime.datetime = value
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(datetime.UTC)

    def execute(self, cursor: Cursor, sql: str, values: Sequence[SqlValue] = ()) -> None:
        """Runs a statement. Without values, a % in it is itself."""
        cursor.execute(sql, tuple(values) or None)

    @contextlib.contextmanager
    def streaming(self, connection: Connection, sql: str, values: Sequence[SqlValue]) -> Iterator[Cursor]:
        """A cursor that fetches a result piece by piece."""
        cursor = connection.cursor()
        try:
            self.execute(cursor, sql, values)
            yield cursor
        finally:
            cursor.close()

    def value(self, schema: Schema, value: SqlValue, zone: datetime.tzinfo) -> SqlValue:
        """A value of the driver as Connect has it."""
        if value is None:
            return None
        if schema.name == schemas.TIMESTAMP:
            return self.time_value(value, zone)
        if schema.name == schemas.DECIMAL:
            return fixed(value, schema)
        if schema.type is Type.BYTES and not isinstance(value, bytes):
            return bytes(value)
        if schema.type is Type.BOOLEAN:
            return bool(value)
        if schema.type is Type.STRING and not isinstance(value, str):
            return str(value)
        return value

    # -- writing

    def column_type(self, schema: Schema, *, key: bool) -> str:
        """The type of a new column; TaskFailed if the database has none."""
        if schema.name == schemas.DECIMAL:
            return self.decimal_type(int((schema.parameters or {}).get(schemas.SCALE, "0")))
        found = self.logical.get(schema.name or "") or self.types.get(schema.type)
        if found is None:
            raise TaskFailed(f"{self.address.kind} has no type for a field of type {schema.type}")
        return self.text_key if key and schema.type is Type.STRING else found

    def decimal_type(self, scale: int) -> str:
        """The type of decimals with that scale."""
        return f"DECIMAL(38,{min(scale, 30)})"

    @abstractmethod
    def upsert(self, table: TableId, keys: Sequence[str], others: Sequence[str]) -> str:
        """A statement that inserts a row or changes the one of the same key."""

    def insert(self, table: TableId, names: Sequence[str]) -> str:
        """A statement that inserts a row."""
        listed = ", ".join(map(self.quote, names))
        marks = ", ".join([self.mark] * len(names))
        return f"INSERT INTO {self.table(table)} ({listed}) VALUES ({marks})"

    def update(self, table: TableId, keys: Sequence[str], others: Sequence[str]) -> str:
        """A statement that changes the row of a key. Its parameters are the other columns first, then the keys."""
        sets = ", ".join(f"{self.quote(one)} = {self.mark}" for one in others)
        return f"UPDATE {self.table(table)} SET {sets} WHERE {self.where(keys)}"

    def delete(self, table: TableId, keys: Sequence[str]) -> str:
        """A statement that removes the row of a key."""
        return f"DELETE FROM {self.table(table)} WHERE {self.where(keys)}"

    def where(self, keys: Sequence[str]) -> str:
        """The condition of a key."""
        return " AND ".join(f"{self.quote(one)} = {self.mark}" for one in keys)

    def execute_many(self, cursor: Cursor, sql: str, rows: Sequence[SqlRow]) -> None:
        """Runs a statement for many rows."""
        cursor.executemany(sql, rows)

    def parameter(self, schema: Schema | None, value: SqlValue) -> SqlValue:
        """A Connect value as a parameter."""
        return value


def fixed(value: SqlValue, schema: Schema) -> decimal.Decimal:
    """A decimal with the scale of its schema."""
    scale = int((schema.parameters or {}).get(schemas.SCALE, "0"))
    number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    return number.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)


_EXACT: Final = decimal.Context(prec=1_000, rounding=decimal.ROUND_HALF_UP)


def dialect_of(address: Address) -> Dialect:
    """The dialect of an address."""
    from ottla.connect.databases.mysql import MySql
    from ottla.connect.databases.postgres import Postgres
    from ottla.connect.databases.sqlite import Sqlite

    kinds: Mapping[str, type[Dialect]] = {"sqlite": Sqlite, "postgresql": Postgres, "mysql": MySql}
    return kinds[address.kind](address)
