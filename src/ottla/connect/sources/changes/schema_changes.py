"""Debezium's topic of schema changes of MySQL and MariaDB: each statement, and the tables as they are behind it.

The statement comes from the log, the columns from the server as it is when the statement is read. The statements of a
snapshot are those that would make its tables.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct
from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.mysql_server import MySqlServer

_INT: Final = schemas.optional(schemas.INT32)
_FLAG: Final = schemas.optional(schemas.BOOLEAN)
_COLUMN: Final = schemas.struct(
    [
        ("name", schemas.STRING),
        ("jdbcType", schemas.INT32),
        ("nativeType", _INT),
        ("typeName", schemas.STRING),
        ("typeExpression", schemas.OPTIONAL_STRING),
        ("charsetName", schemas.OPTIONAL_STRING),
        ("length", _INT),
        ("scale", _INT),
        ("position", schemas.INT32),
        ("optional", _FLAG),
        ("autoIncremented", _FLAG),
        ("generated", _FLAG),
        ("comment", schemas.OPTIONAL_STRING),
        ("defaultValueExpression", schemas.OPTIONAL_STRING),
        ("enumValues", schemas.array(schemas.STRING, optional=True)),
    ],
    name="io.debezium.connector.schema.Column",
    version=1,
)
_TABLE: Final = schemas.struct(
    [
        ("defaultCharsetName", schemas.OPTIONAL_STRING),
        ("primaryKeyColumnNames", schemas.array(schemas.STRING, optional=True)),
        ("columns", schemas.array(_COLUMN)),
        ("comment", schemas.OPTIONAL_STRING),
    ],
    optional=True,
    name="io.debezium.connector.schema.Table",
    version=1,
)
_CHANGE: Final = schemas.struct(
    [("type", schemas.STRING), ("id", schemas.STRING), ("table", _TABLE)],
    name="io.debezium.connector.schema.Change",
    version=1,
)
_NAME: Final = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE_NAME: Final = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"
_EXISTS: Final = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_COMMENT: Final = re.compile(r"\s*(?:/\*(?!!).*?\*/\s*)*", re.DOTALL)
_DATABASE: Final = re.compile(
    rf"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:DATABASE|SCHEMA)\s+{_EXISTS}({_NAME})", re.I
)
_STATEMENTS: Final = (
    ("CREATE", re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+{_EXISTS}{_TABLE_NAME}", re.I)),
    ("ALTER", re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+{_EXISTS}{_TABLE_NAME}", re.I)),
    ("ALTER", re.compile(rf"(?:CREATE|DROP)\s+(?:\w+\s+)*?INDEX\s+.*?\bON\s+{_TABLE_NAME}", re.I | re.S)),
)
_DROPPED: Final = re.compile(rf"DROP\s+TABLE\s+{_EXISTS}", re.I)
_RENAMED: Final = re.compile(r"RENAME\s+TABLES?\s+", re.I)
_TO: Final = re.compile(rf"\bTO\s+{_TABLE_NAME}", re.I)
_KIND: Final = re.compile(r"(\w+)(?:\(([^)]*)\))?(.*)", re.S)
_LABEL: Final = re.compile(r"'(?:[^']|'')*'")
_JDBC: Final[Mapping[str, int]] = {
    "tinyint": 5,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "year": 4,
    "bit": -7,
    "float": 6,
    "double": 8,
    "decimal": 3,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 2014,
    "char": 1,
    "varchar": 12,
    "enum": 1,
    "set": 1,
    "binary": -2,
    "varbinary": -3,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 12),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), 2004),
}
"""Numbers of java.sql.Types."""
_OTHER: Final = 1111


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement did: to a database, or to tables of it."""

    database: str
    tables: tuple[tuple[str, TableId], ...]
    """Each with CREATE, ALTER or DROP."""


def statement(text: str, database: str) -> Statement | None:
    """What a statement did; None for those of no table and no database, such as views and users.

    >>> statement("rename table c to `c``c`, d to x.e", "shop").tables
    (('ALTER', TableId(name='c`c', schema='shop')), ('ALTER', TableId(name='e', schema='x')))
    """
    begin = _COMMENT.match(text)
    text = text[begin.end() :] if begin is not None else text
    if found := _DATABASE.match(text):
        return Statement(_plain(found[1]), ())
    for kind, pattern in _STATEMENTS:
        if found := pattern.match(text):
            table = _table(found[1], found[2], database)
            return Statement(table.schema or database, ((kind, table),))
    named: Iterator[re.Match[str]] | None = None
    if found := _DROPPED.match(text):
        rest = re.split(r"/\*|\b(?:RESTRICT|CASCADE|WAIT|NOWAIT)\b", text[found.end() :], flags=re.I)[0]
        kind, named = "DROP", re.finditer(_TABLE_NAME, rest)
    elif found := _RENAMED.match(text):
        kind, named = "ALTER", _TO.finditer(text)
    if named is None:
        return None
    tables = tuple((kind, _table(one[1], one[2], database)) for one in named)
    return Statement(tables[0][1].schema or database, tables) if tables else None


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _table(first: str, second: str | None, database: str) -> TableId:
    return TableId(_plain(first), database) if second is None else TableId(_plain(second), _plain(first))


class SchemaChanges:
    """Makes the records of one connector's topic."""

    def __init__(self, server: MySqlServer, source: Schema) -> None:
        self._server = server
        name = f"io.debezium.connector.{server.connector}.SchemaChange"
        self._key = schemas.struct([("databaseName", schemas.STRING)], name=f"{name}Key", version=1)
        self._source = source
        self._value = schemas.struct(
            [
                ("source", source),
                ("ts_ms", schemas.INT64),
                ("databaseName", schemas.OPTIONAL_STRING),
                ("schemaName", schemas.OPTIONAL_STRING),
                ("ddl", schemas.OPTIONAL_STRING),
                ("tableChanges", schemas.array(_CHANGE)),
            ],
            name=f"{name}Value",
            version=1,
        )

    def record(
        self,
        text: str,
        done: Statement,
        source: Callable[[TableId], list[ConnectValue]],
    ) -> SourceRecord:
        """The record of a statement; `source` gives the block of that name."""
        changes = [self._change(kind, table) for kind, table in done.tables]
        about = TableId(done.tables[0][1].name if done.tables else "", done.database)
        values = source(about)
        value = Struct.of_values(
            self._value,
            [
                Struct.of_values(self._source, values),
                time.time_ns() // 1_000_000,
                done.database,
                None,
                text,
                [one for one in changes if one is not None],
            ],
        )
        key = Struct.of_values(self._key, [done.database])
        return SourceRecord(self._server.prefix, value, self._value, key, self._key)

    def of_snapshot(
        self, tables: Sequence[TableId], source: Callable[[TableId], list[ConnectValue]]
    ) -> Iterator[SourceRecord]:
        """The statements that would make the tables of a snapshot."""
        quote, ask = self._server.dialect.quote, self._server.ask
        one = ask("SELECT @@character_set_server AS charset, @@collation_server AS sorted")[0]
        text = f"SET character_set_server={one['charset']}, collation_server={one['sorted']}"
        yield self.record(text, Statement("", ()), source)
        for table in tables:
            text = f"DROP TABLE IF EXISTS {self._server.dialect.table(table)}"
            yield self.record(text, Statement(table.schema or "", (("DROP", table),)), source)
        for database in sorted({table.schema or "" for table in tables}):
            made = ask(
                "SELECT default_character_set_name AS charset, default_collation_name AS sorted "
                "FROM information_schema.schemata WHERE schema_name = %s",
                [database],
            )
            about = Statement(database, ())
            yield self.record(f"DROP DATABASE IF EXISTS {quote(database)}", about, source)
            charset = f" CHARSET {made[0]['charset']} COLLATE {made[0]['sorted']}" if made else ""
            yield self.record(f"CREATE DATABASE {quote(database)}{charset}", about, source)
            yield self.record(f"USE {quote(database)}", about, source)
            for table in tables:
                if table.schema == database:
                    try:
                        shown = ask(f"SHOW CREATE TABLE {self._server.dialect.table(table)}")
                    except TaskFailed:
                        continue  # It was dropped meanwhile.
                    made_by = Statement(database, (("CREATE", table),))
                    yield self.record(str(shown[0]["create table"]), made_by, source)

    def _change(self, kind: str, table: TableId) -> Struct | None:
        """A table behind a statement; None if it is gone already."""
        shown = None
        if kind != "DROP":
            shown = self._table(table)
            if shown is None:
                return None
        return Struct.of_values(_CHANGE, [kind, f'"{table.schema}"."{table.name}"', shown])

    def _table(self, table: TableId) -> Struct | None:
        given = [table.schema, table.name]
        about = self._server.ask(
            "SELECT c.character_set_name AS charset, t.table_comment AS comment FROM information_schema.tables t "
            "LEFT JOIN information_schema.collation_character_set_applicability c "
            "ON c.collation_name = t.table_collation WHERE t.table_schema = %s AND t.table_name = %s LIMIT 1",
            given,
        )
        rows = self._server.ask(
            "SELECT column_name AS name, column_type AS kind, is_nullable AS nullable, character_set_name AS charset, "
            "ordinal_position AS place, extra AS extra, column_comment AS comment, column_default AS written "
            "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            given,
        )
        if not about or not rows:
            return None
        keys = self._server.ask(
            "SELECT column_name AS name FROM information_schema.key_column_usage WHERE table_schema = %s "
            "AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position",
            given,
        )
        return Struct.of_values(
            _TABLE,
            [
                about[0]["charset"],
                [str(one["name"]) for one in keys] or self._server.unique_columns(table),
                [_column(row) for row in rows],
                about[0]["comment"] or None,
            ],
        )


def _column(row: Mapping[str, object]) -> Struct:
    found = _KIND.match(str(row["kind"]))
    assert found is not None
    kind, inside, more = found[1].lower(), found[2], found[3].lower()
    shown = (
        kind.upper()
        + (" UNSIGNED" if "unsigned" in more else "")
        + (" ZEROFILL" if "zerofill" in more else "")
    )
    labels: ConnectValue = None
    length = scale = None
    if kind in ("enum", "set"):
        labels = _LABEL.findall(str(row["kind"]))
        length = 1 if kind == "enum" else max(1, 2 * len(labels) - 1)
    elif inside:
        numbers = [int(one) for one in inside.split(",")]
        length, scale = numbers[0], numbers[1] if len(numbers) > 1 else None
    counts = "auto_increment" in str(row["extra"] or "").lower()
    return Struct.of_values(
        _COLUMN,
        [
            row["name"],
            _JDBC.get(kind, _OTHER),
            None,
            shown,
            shown,
            row["charset"],
            length,
            scale,
            row["place"],
            str(row["nullable"]).upper() == "YES",
            counts,
            counts,
            row["comment"] or None,
            _default(row["written"]),
            labels,
        ],
    )


def _default(written: object) -> str | None:
    """A default as Debezium has it: the text itself, without quotes."""
    if written is None or str(written).upper() == "NULL":
        return None
    text = str(written)
    if text.lower().startswith(("current_timestamp", "now(")):
        return "1970-01-01 00:00:00"
    text = text[1:] if text.startswith("b'") else text
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if quoted else text
