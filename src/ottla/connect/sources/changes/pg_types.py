"""Types of PostgreSQL in Debezium's shape: the schema of a column, and its value from PostgreSQL's own text."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.logical import signed_bytes
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.envelope import UNAVAILABLE

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_US: Final = datetime.timedelta(microseconds=1)
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_VARIABLE: Final = schemas.struct(
    [("scale", schemas.INT32), ("value", schemas.BYTES)],
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
)
_MONTH_US: Final = int(365.25 / 12 * 86_400_000_000)

Parse = Callable[[str], ConnectValue]


def _named(kind: Type, name: str) -> Schema:
    return Schema(kind, name=name, version=1)


@dataclass(frozen=True, slots=True)
class PgType:
    """A type: its schema when the column may not be null, and the value of a text."""

    schema: Schema
    parse: Parse

    def nullable(self) -> PgType:
        """The type of a column that may be null. A struct carries its schema, so it changes too."""
        schema, parse = schemas.optional(self.schema), self.parse
        if schema.type is not Type.STRUCT:
            return PgType(schema, parse)
        names = [at.name for at in schema.fields]

        def made(text: str) -> Struct:
            found = parse(text)
            return Struct(schema, {name: found.get(name) for name in names})

        return PgType(schema, made)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


def _days(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return 2**31 - 1 if text == "infinity" else -(2**31)
    return (_day(text) - datetime.date(1970, 1, 1)).days


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise TaskFailed(f"the date {text} is not in the years 1 to 9999") from None


def _time_us(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise TaskFailed(f"PostgreSQL sent the time {text!r}, which cannot be read")
    hours, minutes, seconds, part = match.groups()
    us = int((part or "0").ljust(6, "0"))
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + us


def _instant(text: str) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise TaskFailed(f"the time {text} is not in the years 1 to 9999") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _micros(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return 9_223_372_036_825_200_000 if text == "infinity" else -9_223_372_036_832_400_000
    return (_instant(text) - _EPOCH) // _US


def _zoned(text: str) -> str:
    """ISO 8601 in UTC, with as many digits as are needed, but six if any."""
    if text in ("infinity", "-infinity"):
        return text
    found = _instant(text).astimezone(datetime.UTC)
    part = f".{found.microsecond:06d}" if found.microsecond else ""
    return f"{found:%Y-%m-%dT%H:%M:%S}{part}Z"


def _zoned_time(text: str) -> str:
    found = datetime.time.fromisoformat(text)
    moved = datetime.datetime.combine(datetime.date(2000, 1, 2), found).astimezone(datetime.UTC)
    part = f".{moved.microsecond:06d}" if moved.microsecond else ""
    return f"{moved:%H:%M:%S}{part}Z"


def _interval_us(text: str) -> int:
    """Microseconds of an interval; a month has 30.4375 days, as Debezium counts."""
    total = 0
    for number, unit in re.findall(r"(-?\d+) (year|mon|day)s?", text):
        total += int(number) * {"year": 12 * _MONTH_US, "mon": _MONTH_US, "day": 86_400_000_000}[unit]
    clock = re.search(r"(-?)(\d+:\d\d:\d\d(?:\.\d+)?)", text)
    if clock is not None:
        hours, minutes, seconds = clock[2].split(":")
        us = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(decimal.Decimal(seconds) * 1_000_000)
        total += -us if clock[1] else us
    return total


def _variable(text: str) -> Struct:
    number = _decimal(text)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    return Struct(
        _VARIABLE, {"scale": max(0, -exponent), "value": signed_bytes(-unscaled if sign else unscaled)}
    )


def _decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text)
    if not number.is_finite():
        raise TaskFailed(f"the number {text} has no Decimal: set decimal.handling.mode to double or string")
    return number


_PLAIN: Final[Mapping[int, PgType]] = {
    16: PgType(schemas.BOOLEAN, lambda text: text in ("t", "true")),
    17: PgType(schemas.BYTES, _bytes),
    20: PgType(schemas.INT64, int),
    21: PgType(schemas.INT16, int),
    23: PgType(schemas.INT32, int),
    26: PgType(schemas.INT64, int),
    700: PgType(schemas.FLOAT32, float),
    701: PgType(schemas.FLOAT64, float),
    114: PgType(_named(Type.STRING, "io.debezium.data.Json"), str),
    3802: PgType(_named(Type.STRING, "io.debezium.data.Json"), str),
    142: PgType(_named(Type.STRING, "io.debezium.data.Xml"), str),
    2950: PgType(_named(Type.STRING, "io.debezium.data.Uuid"), str),
    1184: PgType(_named(Type.STRING, "io.debezium.time.ZonedTimestamp"), _zoned),
    1266: PgType(_named(Type.STRING, "io.debezium.time.ZonedTime"), _zoned_time),
    1186: PgType(_named(Type.INT64, "io.debezium.time.MicroDuration"), _interval_us),
    **{oid: PgType(schemas.STRING, str) for oid in (18, 19, 25, 650, 829, 869, 1042, 1043, 774)},
}
_ELEMENTS: Final = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1009: 25, 1015: 1043, 1014: 1042, 1016: 20, 1021: 700, 1022: 701,
    1115: 1114, 1182: 1082, 1185: 1184, 1231: 1700, 2951: 2950, 199: 114, 3807: 3802,
}  # fmt: skip
"""Arrays and what they are of."""


def pg_type(oid: int, modifier: int, decimals: str, times: str, labels: Mapping[int, str]) -> PgType | None:
    """The type of a column; None for those that Debezium leaves out as well. `labels` are those of enums."""
    if oid in labels:
        parameters = {"allowed": labels[oid]}
        return PgType(
            Schema(Type.STRING, name="io.debezium.data.Enum", version=1, parameters=parameters), str
        )
    if oid == 1700:
        return _numeric(modifier, decimals)
    if oid == 1082:
        if times == "connect":
            return PgType(schemas.DATE_SCHEMA, _day)
        return PgType(_named(Type.INT32, "io.debezium.time.Date"), _days)
    if oid == 1083:
        return _time(modifier, times)
    if oid == 1114:
        return _timestamp(modifier, times)
    if oid in _ELEMENTS:
        inner = pg_type(_ELEMENTS[oid], -1, decimals, times, labels)
        assert inner is not None
        item = inner.nullable()
        return PgType(schemas.array(item.schema), lambda text: array_values(text, item.parse))
    return _PLAIN.get(oid)


def _numeric(modifier: int, mode: str) -> PgType:
    if mode == "double":
        return PgType(schemas.FLOAT64, float)
    if mode == "string":
        return PgType(schemas.STRING, str)
    if modifier < 4:
        return PgType(_VARIABLE, _variable)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    schema = Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters=parameters)
    return PgType(schema, _decimal)


def _time(modifier: int, mode: str) -> PgType:
    if mode == "connect":
        return PgType(schemas.TIME_SCHEMA, datetime.time.fromisoformat)
    if mode == "adaptive" and 0 <= modifier <= 3:
        return PgType(_named(Type.INT32, "io.debezium.time.Time"), lambda text: _time_us(text) // 1000)
    return PgType(_named(Type.INT64, "io.debezium.time.MicroTime"), _time_us)


def _timestamp(modifier: int, mode: str) -> PgType:
    if mode == "connect":
        return PgType(schemas.TIMESTAMP_SCHEMA, _instant)
    if 0 <= modifier <= 3:
        return PgType(_named(Type.INT64, "io.debezium.time.Timestamp"), lambda text: _micros(text) // 1000)
    return PgType(_named(Type.INT64, "io.debezium.time.MicroTimestamp"), _micros)


def unavailable(schema: Schema) -> ConnectValue:
    """What stands for a large value that was not sent, because it did not change."""
    if schema.type is Type.BYTES and schema.name is None:
        return UNAVAILABLE.encode()
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [unavailable(schema.value_schema)] if schema.value_schema.type is Type.STRING else []
    return UNAVAILABLE if schema.type is Type.STRING else None


_ITEM: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')


def array_values(text: str, parse: Parse) -> list[ConnectValue]:
    """The values of an array with one dimension, from PostgreSQL's text of it.

    >>> array_values('{1,NULL,"a, b"}', str)
    ['1', None, 'a, b']
    """
    if not text.startswith("{") or text.startswith("{{"):
        raise TaskFailed("a column has an array with several dimensions, which Connect's records cannot hold")
    found: list[ConnectValue] = []
    for match in _ITEM.finditer(text[1:-1]):
        if match[2] is not None:
            found.append(None if match[2] == "NULL" else parse(match[2]))
        else:
            found.append(parse(re.sub(r"\\(.)", r"\1", match[1])))
    return found
