"""PostgreSQL through psycopg2."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Type
from ottla.connect.databases.connection import Connection, Cursor, SqlRow, SqlValue
from ottla.connect.databases.dialect import FETCH_ROWS, Column, Dialect, TableId, column_schema

_REFUSED: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "permission denied")
_CURSORS: Final = itertools.count(1)
_OPTIONS: Final = {
    "sslmode": "sslmode",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
}
_FORMATS: Final = (
    "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC -c bytea_output=hex -c lc_monetary=C "
    "-c extra_float_digits=1"
)
"""How the server writes values as text, whatever its own settings say."""
_DEFAULT_SCALE: Final = 18
"""The scale of numbers that are declared without one."""
_BY_OID: Final[dict[int, Schema]] = {
    16: schemas.BOOLEAN,
    17: schemas.BYTES,
    20: schemas.INT64,
    21: schemas.INT16,
    23: schemas.INT32,
    26: schemas.INT64,
    700: schemas.FLOAT32,
    701: schemas.FLOAT64,
    1082: schemas.DATE_SCHEMA,
    1083: schemas.TIME_SCHEMA,
    1114: schemas.TIMESTAMP_SCHEMA,
    1184: schemas.TIMESTAMP_SCHEMA,
    **dict.fromkeys(
        (18, 19, 25, 114, 142, 650, 829, 869, 1042, 1043, 1186, 1266, 2950, 3802), schemas.STRING
    ),
}
_NUMERIC: Final = 1700
_AS_TEXT: Final = (114, 1186, 1266, 3802)
"""Types that the driver would make objects of: JSON, intervals and times with a zone."""


class Postgres(Dialect):
    """A database of PostgreSQL."""

    library = ("psycopg2", "postgres")
    types: ClassVar[Mapping[Type, str]] = {
        Type.INT8: "SMALLINT",
        Type.INT16: "SMALLINT",
        Type.INT32: "INTEGER",
        Type.INT64: "BIGINT",
        Type.FLOAT32: "REAL",
        Type.FLOAT64: "DOUBLE PRECISION",
        Type.BOOLEAN: "BOOLEAN",
        Type.STRING: "TEXT",
        Type.BYTES: "BYTEA",
    }
    logical: ClassVar[Mapping[str, str]] = {
        schemas.DATE: "DATE",
        schemas.TIME: "TIME",
        schemas.TIMESTAMP: "TIMESTAMP",
    }

    def _connect(self) -> Connection:
        return self._open()

    def replication(self) -> Connection:
        """A connection for logical replication."""
        from psycopg2.extras import LogicalReplicationConnection

        with self.errors(f"cannot connect to {self.address} for replication"):
            return self._open(connection_factory=LogicalReplicationConnection)

    def connect_for_texts(self) -> Connection:
        """A connection whose values are the server's own texts, as a stream of changes has them."""
        import psycopg2

        connection = self.connect()
        known = tuple(psycopg2.extensions.string_types)
        as_sent = psycopg2.extensions.new_type(known, "SENT", lambda text, _: text)
        psycopg2.extensions.register_type(as_sent, connection)
        return connection

    def _open(self, **more: object) -> Connection:
        import psycopg2

        at = self.address
        given = {_OPTIONS[key]: value for key, value in at.options.items() if key in _OPTIONS}
        connection = psycopg2.connect(
            host=at.host,
            port=at.port,
            dbname=at.database or at.user,
            user=at.user,
            password=at.password,
            options=_FORMATS,
            **{"connect_timeout": "10", "application_name": "ottla-connect", **given},
            **more,
        )
        if not more:
            plain = psycopg2.extensions.new_type(_AS_TEXT, "PLAIN", lambda text, _: text)
            psycopg2.extensions.register_type(plain, connection)
            with connection.cursor() as cursor:
                cursor.execute("SET TIME ZONE 'UTC'")
            connection.commit()
        return connection

    def is_error(self, error: BaseException) -> bool:
        import psycopg2

        return isinstance(error, psycopg2.Error)

    def passes(self, error: BaseException) -> bool:
        import psycopg2

        if isinstance(error, psycopg2.errors.SerializationFailure | psycopg2.errors.DeadlockDetected):
            return True
        lost = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
        if type(error) is psycopg2.DatabaseError and getattr(error, "pgcode", None) is None:
            # What the driver says when a stream ends without a word from the server.
            lost = True
        return lost and not any(one in str(error) for one in _REFUSED)

    def tables(self, connection: Connection, types: Sequence[str]) -> list[TableId]:
        kinds = {"TABLE": "BASE TABLE"}
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = ANY(%s) "
                "AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
                ([kinds.get(one.upper(), one.upper()) for one in types],),
            )
            return [TableId(name, schema) for schema, name in cursor.fetchall()]

    def columns(self, connection: Connection, table: TableId) -> list[Column]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype WHEN 'e' THEN 25 ELSE a.atttypid END, "
                "a.atttypmod, a.attnotnull, COALESCE(a.attnum = ANY(i.indkey), false), "
                "a.attidentity <> '' OR COALESCE(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%%', t.typname "
                "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
                "LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary "
                "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
                "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                (self.table(table),),
            )
            return [_column(*row) for row in cursor.fetchall()]

    def described(self, cursor: Cursor, first: SqlRow | None) -> list[Column]:
        found = []
        for one in cursor.description:
            scale = one.scale if one.type_code == _NUMERIC and one.precision is not None else None
            schema = _schema(one.type_code, scale)
            found.append(Column(one.name, schemas.optional(schema) if schema is not None else None))
        return found

    def now(self, connection: Connection) -> datetime.datetime:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            found: datetime.datetime = cursor.fetchone()[0]
        connection.rollback()
        return found.astimezone(datetime.UTC)

    @contextlib.contextmanager
    def streaming(self, connection: Connection, sql: str, values: Sequence[SqlValue]) -> Iterator[Cursor]:
        """A cursor on the server: the driver would hold the whole result otherwise."""
        cursor = connection.cursor(f"ottla_{next(_CURSORS)}")
        cursor.itersize = FETCH_ROWS
        try:
            self.execute(cursor, sql, values)
            yield cursor
        finally:
            with contextlib.suppress(Exception):
                cursor.close()
            with contextlib.suppress(Exception):
                connection.rollback()

    def upsert(self, table: TableId, keys: Sequence[str], others: Sequence[str]) -> str:
        listed = ", ".join(map(self.quote, keys))
        sets = ", ".join(f"{self.quote(one)} = EXCLUDED.{self.quote(one)}" for one in others)
        return f"{self.insert(table, [*keys, *others])} ON CONFLICT ({listed}) DO " + (
            f"UPDATE SET {sets}" if sets else "NOTHING"
        )

    def decimal_type(self, scale: int) -> str:
        return f"DECIMAL(1000,{scale})" if scale <= 1000 else "DECIMAL"

    def execute_many(self, cursor: Cursor, sql: str, rows: Sequence[SqlRow]) -> None:
        """Many rows in one round trip."""
        from psycopg2.extras import execute_batch, execute_values

        head, found, tail = sql.partition(" VALUES (")
        if found:
            _, _, rest = tail.partition(")")
            execute_values(cursor, f"{head} VALUES %s{rest}", rows, page_size=1000)
        else:
            execute_batch(cursor, sql, rows, page_size=1000)

    def parameter(self, schema: Schema | None, value: SqlValue) -> SqlValue:
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value


def _column(
    name: str, oid: int, modifier: int, not_null: bool, key: bool, numbered: bool, kind: str
) -> Column:
    scale = (modifier - 4) & 0xFFFF if oid == _NUMERIC and modifier >= 4 else None
    schema = _schema(oid, scale)
    typed = column_schema(schema, nullable=not not_null) if schema is not None else None
    return Column(name, typed, bool(key), bool(numbered), kind)


def _schema(oid: int, scale: int | None) -> Schema | None:
    if oid == _NUMERIC:
        return schemas.decimal_schema(_DEFAULT_SCALE if scale is None else scale)
    return _BY_OID.get(oid)
