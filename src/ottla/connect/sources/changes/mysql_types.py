"""Types of MySQL and MariaDB in Debezium's shape, from the tables' definitions and from the binary log alike.

A column's values come from PyMySQL (snapshot) or from mysql-replication (log): `convert` takes what either gives.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import ipaddress
import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import Schema, Struct, Type
from ottla.connect.databases.dialect import fixed
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.envelope import POINT

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_US: Final = datetime.timedelta(microseconds=1)
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_GEOMETRY: Final = schemas.struct(
    [("wkb", schemas.BYTES), ("srid", schemas.optional(schemas.INT32))],
    name="io.debezium.data.geometry.Geometry",
    version=1,
    doc="Geometry",
)
_KINDS: Final = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp", 8: "bigint", 9: "mediumint",
    10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "varchar", 16: "bit", 17: "timestamp",
    18: "datetime", 19: "time", 245: "json", 246: "decimal", 247: "enum", 248: "set", 252: "text", 253: "varchar",
    254: "char", 255: "geometry",
}  # fmt: skip
"""The types of columns in the log. Text and bytes have one number; the character set tells them apart."""
_BINARY: Final = {"char": "binary", "varchar": "varbinary", "text": "blob"}
_WHOLE: Final = {
    "tinyint": (schemas.INT16, schemas.INT16),
    "smallint": (schemas.INT16, schemas.INT32),
    "mediumint": (schemas.INT32, schemas.INT32),
    "int": (schemas.INT32, schemas.INT64),
    "bigint": (schemas.INT64, schemas.INT64),
}
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")
_SHAPES: Final = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)

Convert = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class LogColumn:
    """A column of a table. `key` is its place in the primary key from 1, or 0."""

    name: str
    kind: str
    nullable: bool
    key: int = 0
    unsigned: bool = False
    length: int = 0
    """Bits of a bit column, bytes of a binary one."""
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    """Digits of a second."""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MySqlType:
    """A column's schema, and its values."""

    schema: Schema
    convert: Convert
    always_nullable: bool = False
    """Debezium has shapes, but for points, as columns that may be null."""


@dataclass(frozen=True, slots=True)
class TypeModes:
    """How a connector's keys map types."""

    decimals: str = "precise"
    times: str = "adaptive_time_microseconds"
    unsigned: str = "long"
    binary: str = "bytes"


class _Logged(Protocol):
    """A column as mysql-replication has it."""

    type: int
    name: str
    unsigned: bool
    character_set_name: str | None
    enum_values: Sequence[str] | None
    set_values: Sequence[str] | None


def column_of_log(found: _Logged, *, nullable: bool, key: int) -> LogColumn:
    """A column from a table map event."""
    kind = _KINDS.get(found.type, "")
    if kind in _BINARY and found.character_set_name == "binary":
        kind = _BINARY[kind]
    labels = found.enum_values or found.set_values or ()
    return LogColumn(
        found.name or "",
        kind,
        nullable,
        key,
        bool(found.unsigned),
        int(getattr(found, "bits", 0) or getattr(found, "max_length", 0)),
        int(getattr(found, "precision", 0)),
        int(getattr(found, "decimals", 0)),
        int(getattr(found, "fsp", 0)),
        tuple(labels[1:] if kind == "enum" else labels),
    )


def column_of_table(row: Mapping[str, object]) -> LogColumn:
    """A column from information_schema.columns."""
    full = str(row["column_type"])

    def number(name: str) -> int:
        found = row[name]
        return int(found) if isinstance(found, int | decimal.Decimal) else 0

    kind = str(row["data_type"]).lower()
    labels = tuple(one.replace("''", "'") for one in _QUOTED.findall(full)) if kind in ("enum", "set") else ()
    return LogColumn(
        str(row["column_name"]),
        kind,
        row["is_nullable"] == "YES",
        number("key_place"),
        "unsigned" in full.lower(),
        number("numeric_precision") if kind == "bit" else number("character_octet_length"),
        number("numeric_precision"),
        number("numeric_scale"),
        number("datetime_precision"),
        labels,
    )


def _named(kind: Type, name: str, **parameters: str) -> Schema:
    return Schema(kind, name=name, version=1, parameters=parameters or None)


def mysql_type(column: LogColumn, modes: TypeModes) -> MySqlType | None:
    """The type of a column that may not be null; None for types that have no mapping."""
    kind = column.kind
    if kind in _WHOLE:
        if kind == "bigint" and column.unsigned:
            return _big(modes.unsigned)
        return MySqlType(_WHOLE[kind][column.unsigned], _whole)
    if kind in ("decimal", "numeric"):
        return _decimal(column, modes.decimals)
    if kind in _TEXTS:
        return MySqlType(schemas.STRING, _text)
    if kind in _BYTES:
        return _bytes_type(column, modes.binary)
    if kind == "bit":
        return _bits(column.length)
    if kind in ("enum", "set"):
        name = "io.debezium.data.Enum" if kind == "enum" else "io.debezium.data.EnumSet"
        order = {label: index for index, label in enumerate(column.labels)}
        return MySqlType(
            _named(Type.STRING, name, allowed=",".join(one.replace(",", "\\,") for one in column.labels)),
            _text if kind == "enum" else lambda value: _members(value, order),
        )
    if kind == "point":
        return MySqlType(POINT, lambda value: _geometry(value, POINT))
    if kind in _SHAPES:
        return MySqlType(_GEOMETRY, lambda value: _geometry(value, _GEOMETRY), always_nullable=True)
    return _time_type(column, modes.times) or _PLAIN.get(kind)


def nullable_type(found: MySqlType) -> MySqlType:
    """The type of a column that may be null. A struct carries its schema, so it changes too."""
    schema = schemas.optional(found.schema)
    if schema.type is Type.STRUCT:
        return MySqlType(schema, lambda value: _geometry(value, schema))
    return MySqlType(schema, found.convert)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1", "replace")


def _number(value: object) -> float:
    assert isinstance(value, float | int | decimal.Decimal)
    return float(value)


def _big(mode: str) -> MySqlType:
    if mode == "precise":
        schema = schemas.decimal_schema(0)
        return MySqlType(schema, lambda value: decimal.Decimal(_whole(value)))
    return MySqlType(schemas.INT64, lambda value: (_whole(value) + 2**63) % 2**64 - 2**63)


def _decimal(column: LogColumn, mode: str) -> MySqlType:
    if mode == "double":
        return MySqlType(schemas.FLOAT64, _number)
    parameters = {schemas.SCALE: str(column.scale), "connect.decimal.precision": str(column.precision)}
    schema = Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters=parameters)
    if mode == "string":
        return MySqlType(schemas.STRING, lambda value: format(fixed(value, schema), "f"))
    return MySqlType(schema, lambda value: fixed(value, schema))


def _bytes_type(column: LogColumn, mode: str) -> MySqlType:
    def padded(value: object) -> bytes:
        # The log leaves the zeros at the end of a fixed column out.
        found = _raw(value)
        return found.ljust(column.length, b"\0") if column.kind == "binary" else found

    if mode == "base64":
        return MySqlType(schemas.STRING, lambda value: base64.b64encode(padded(value)).decode())
    if mode == "base64-url-safe":
        return MySqlType(schemas.STRING, lambda value: base64.urlsafe_b64encode(padded(value)).decode())
    if mode == "hex":
        return MySqlType(schemas.STRING, lambda value: padded(value).hex())
    return MySqlType(schemas.BYTES, padded)


def _bits(length: int) -> MySqlType:
    """One bit is a boolean; more are bytes, the lowest first, as Debezium has them."""

    def number(value: object) -> int:
        return int.from_bytes(value, "big") if isinstance(value, bytes) else int(str(value) or "0", 2)

    if length <= 1:
        return MySqlType(schemas.BOOLEAN, lambda value: bool(number(value)))
    size = (length + 7) // 8
    schema = _named(Type.BYTES, "io.debezium.data.Bits", length=str(length))
    return MySqlType(schema, lambda value: number(value).to_bytes(size, "little"))


def _members(value: object, order: Mapping[str, int]) -> str:
    if isinstance(value, set | frozenset):
        return ",".join(sorted(map(str, value), key=lambda one: order.get(one, len(order))))
    return _text(value)


def _json(value: object) -> str:
    """MySQL's JSON arrives parsed from its log, with bytes for text; MariaDB's is text."""
    if isinstance(value, str | bytes):
        return _text(value)
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {_text(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return _text(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _geometry(value: object, schema: Schema) -> Struct:
    found = _raw(value)
    srid = int.from_bytes(found[:4], "little")
    made = Struct(schema, {"wkb": found[4:], "srid": srid or None})
    if schema.name == POINT.name:
        made.put("x", struct.unpack("<d", found[9:17])[0]).put("y", struct.unpack("<d", found[17:25])[0])
    return made


def _moment(value: object) -> datetime.datetime:
    """A date and time; the zero date, which MySQL allows and Python does not have, is the epoch."""
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else _EPOCH


def _day(value: object) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    return value if isinstance(value, datetime.date) else _EPOCH.date()


def _time_us(value: object) -> int:
    if not isinstance(value, datetime.timedelta):
        raise TaskFailed(f"the server sent the time {value!r}, which cannot be read")
    return value // _US


def _time(value: object) -> datetime.time:
    us = _time_us(value)
    if not 0 <= us < 86_400_000_000:
        raise TaskFailed(
            "a column of type TIME is not within a day: set time.precision.mode to adaptive_time_microseconds"
        )
    return (_EPOCH + datetime.timedelta(microseconds=us)).time()


def _zoned(fraction: int) -> Convert:
    def text(value: object) -> str:
        moment = _moment(value)
        part = f".{moment.microsecond:06d}"[: fraction + 1] if fraction else ""
        return f"{moment:%Y-%m-%dT%H:%M:%S}{part}Z"

    return text


def _time_type(column: LogColumn, mode: str) -> MySqlType | None:
    kind, fraction = column.kind, column.fraction
    if kind == "timestamp":
        return MySqlType(_named(Type.STRING, "io.debezium.time.ZonedTimestamp"), _zoned(fraction))
    if kind == "date":
        if mode == "connect":
            return MySqlType(schemas.DATE_SCHEMA, _day)
        schema = _named(Type.INT32, "io.debezium.time.Date")
        return MySqlType(schema, lambda value: (_day(value) - _EPOCH.date()).days)
    if kind == "time":
        if mode == "connect":
            return MySqlType(schemas.TIME_SCHEMA, _time)
        return MySqlType(_named(Type.INT64, "io.debezium.time.MicroTime"), _time_us)
    if kind == "datetime":
        if mode == "connect":
            return MySqlType(
                schemas.TIMESTAMP_SCHEMA, lambda value: _moment(value).replace(tzinfo=datetime.UTC)
            )
        if fraction <= 3:
            schema = _named(Type.INT64, "io.debezium.time.Timestamp")
            return MySqlType(schema, lambda value: (_moment(value) - _EPOCH) // _US // 1000)
        schema = _named(Type.INT64, "io.debezium.time.MicroTimestamp")
        return MySqlType(schema, lambda value: (_moment(value) - _EPOCH) // _US)
    return None


def _uuid(value: object) -> str:
    return str(uuid.UUID(bytes=value.ljust(16, b"\0"))) if isinstance(value, bytes) else str(value)


def _address(value: object) -> str:
    """An address of MariaDB's types inet4 and inet6."""
    if isinstance(value, bytes):
        size = 4 if len(value) <= 4 else 16
        return str(ipaddress.ip_address(value.ljust(size, b"\0")))
    return str(value)


_PLAIN: Final[Mapping[str, MySqlType]] = {
    "float": MySqlType(schemas.FLOAT32, _number),
    "double": MySqlType(schemas.FLOAT64, _number),
    "year": MySqlType(_named(Type.INT32, "io.debezium.time.Year"), _whole),
    "json": MySqlType(_named(Type.STRING, "io.debezium.data.Json"), _json),
    "uuid": MySqlType(_named(Type.STRING, "io.debezium.data.Uuid"), _uuid),
    "inet4": MySqlType(schemas.STRING, _address),
    "inet6": MySqlType(schemas.STRING, _address),
}
HIDDEN_KINDS: Final = frozenset(("uuid", "inet4", "inet6"))
"""Types that the log shows as bytes of a fixed length."""
