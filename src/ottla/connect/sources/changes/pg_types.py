"""Types of PostgreSQL in Debezium's shape: the schema of a column, and its value from PostgreSQL's own text.

Types of extensions and of users have numbers that differ between databases: `OwnType` says what they are.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.logical import signed_bytes
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.databases.dialect import fixed
from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.envelope import POINT, UNAVAILABLE

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_US: Final = datetime.timedelta(microseconds=1)
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_VARIABLE: Final = schemas.struct(
    [("scale", schemas.INT32), ("value", schemas.BYTES)],
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
)
_UNLIMITED_BITS: Final = 2**31 - 1
_LOCAL: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?")
_UTC: Final = re.compile(_LOCAL.pattern + r"\+00")
_MONTH_US: Final = int(365.25 / 12 * 86_400_000_000)

Parse = Callable[[str], ConnectValue]


def _named(kind: Type, name: str) -> Schema:
    return Schema(kind, name=name, version=1)


@dataclass(frozen=True, slots=True)
class OwnType:
    """A type that is not built in. `kind` is pg_type's: b, d for a domain, e for an enum."""

    name: str
    kind: str
    base: int = 0
    modifier: int = -1
    element: int = 0
    labels: str = ""


@dataclass(frozen=True, slots=True)
class TypeModes:
    """How a connector's keys map types, and the types that are not built in, by number."""

    decimals: str = "precise"
    times: str = "adaptive"
    own: Mapping[int, OwnType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PgType:
    """A type: its schema when the column may not be null, and the value of a text."""

    schema: Schema
    parse: Parse
    has_default: bool = True
    """Whether the schema tells the column's default; Debezium leaves it out for some types."""

    def nullable(self) -> PgType:
        """The type of a column that may be null. A struct carries its schema, so it changes too."""
        schema, parse = schemas.optional(self.schema), self.parse
        if schema.type is not Type.STRUCT:
            return PgType(schema, parse, self.has_default)
        names = [at.name for at in schema.fields]

        def made(text: str) -> Struct:
            found = parse(text)
            return Struct(schema, {name: found.get(name) for name in names})

        return PgType(schema, made, self.has_default)


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


@functools.lru_cache(1024)
def _day_us(text: str) -> int:
    return (_day(text) - datetime.date(1970, 1, 1)).days * 86_400_000_000


def _micros(text: str) -> int:
    if _LOCAL.fullmatch(text):
        part = int(text[20:].ljust(6, "0")) if len(text) > 19 else 0
        clock = (int(text[11:13]) * 60 + int(text[14:16])) * 60 + int(text[17:19])
        return _day_us(text[:10]) + clock * 1_000_000 + part
    if text in ("infinity", "-infinity"):
        return 9_223_372_036_825_200_000 if text == "infinity" else -9_223_372_036_832_400_000
    return (_instant(text) - _EPOCH) // _US


def _zoned(digits: int) -> Parse:
    """ISO 8601 in UTC, with as many digits of a second as the column has."""

    def parse(text: str) -> str:
        if _UTC.fullmatch(text):
            # Connections ask for UTC, so that this is the rule.
            part = (text[19:-3] or ".").ljust(7, "0")[: digits + 1] if digits else ""
            return f"{text[:10]}T{text[11:19]}{part}Z"
        if text in ("infinity", "-infinity"):
            return text
        found = _instant(text).astimezone(datetime.UTC)
        part = f".{found.microsecond:06d}"[: digits + 1] if digits else ""
        return f"{found:%Y-%m-%dT%H:%M:%S}{part}Z"

    return parse


def _zoned_time(text: str) -> str:
    found = datetime.time.fromisoformat(text)
    moved = datetime.datetime.combine(datetime.date(2000, 1, 2), found).astimezone(datetime.UTC)
    part = f".{moved.microsecond:06d}".rstrip("0") if moved.microsecond else ""
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
    # Zeros at the end are not kept, as in Debezium.
    number = _decimal(text.rstrip("0") if "." in text else text)
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


_NOT_MONEY: Final = re.compile(r"[^\d.,-]")
_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")')
_ESCAPED: Final = re.compile(r"\\(.)")


def _money(text: str) -> decimal.Decimal:
    """An amount, whatever currency and separators the server's locale writes."""
    plain = _NOT_MONEY.sub("", text)
    whole, cents = plain[:-3], plain[-2:]
    if len(plain) < 3 or plain[-3] not in ".,":
        whole, cents = plain, "00"
    number = decimal.Decimal(re.sub(r"\D", "", whole) + "." + cents)
    return -number if "-" in text or text.startswith("(") else number


def _bits(text: str) -> bytes:
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _point(text: str) -> Struct:
    x, y = map(float, text.strip("()").split(","))
    return Struct(POINT, {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None})


def _hstore(text: str) -> str:
    """JSON with the pairs.

    >>> _hstore('"a"=>"1", "b"=>NULL')
    '{"a":"1","b":null}'
    """
    pairs = {
        _ESCAPED.sub(r"\1", key): None if value is None else _ESCAPED.sub(r"\1", value)
        for key, value in (match.groups() for match in _PAIR.finditer(text))
    }
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


_BY_NAME: Final[Mapping[str, PgType]] = {
    "citext": PgType(schemas.STRING, str),
    "hstore": PgType(_named(Type.STRING, "io.debezium.data.Json"), _hstore),
    "ltree": PgType(_named(Type.STRING, "io.debezium.data.Ltree"), str),
}
"""Types of extensions."""
_PLAIN: Final[Mapping[int, PgType]] = {
    16: PgType(schemas.BOOLEAN, lambda text: text in ("t", "true")),
    17: PgType(schemas.BYTES, _bytes, has_default=False),
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
    1266: PgType(_named(Type.STRING, "io.debezium.time.ZonedTime"), _zoned_time),
    1186: PgType(_named(Type.INT64, "io.debezium.time.MicroDuration"), _interval_us),
    600: PgType(POINT, _point, has_default=False),
    3614: PgType(_named(Type.STRING, "io.debezium.data.Tsvector"), str),
    **{oid: PgType(schemas.STRING, str) for oid in (18, 19, 25, 650, 829, 869, 1042, 1043, 774)},
    **{oid: PgType(schemas.STRING, str) for oid in (3904, 3926, 3906, 3908, 3910, 3912)},
}
_ELEMENTS: Final = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1009: 25, 1015: 1043, 1014: 1042, 1016: 20, 1021: 700, 1022: 701,
    1115: 1114, 1182: 1082, 1185: 1184, 1231: 1700, 2951: 2950, 199: 114, 3807: 3802, 1183: 1083, 1270: 1266,
    1041: 869, 651: 650, 1040: 829, 775: 774, 1028: 26, 3905: 3904, 3927: 3926, 3907: 3906, 3909: 3908, 3911: 3910,
    3913: 3912,
}  # fmt: skip
"""Arrays and what they are of."""


def pg_type(oid: int, modifier: int, modes: TypeModes) -> PgType | None:
    """The type of a column; None for those that Debezium leaves out as well."""
    if oid in modes.own:
        return _own_type(modes.own[oid], modifier, modes)
    if oid == 1700:
        return _numeric(modifier, modes.decimals)
    if oid == 790:
        return _money_type(modes.decimals)
    if oid == 1082:
        if modes.times == "connect":
            return PgType(schemas.DATE_SCHEMA, _day)
        return PgType(_named(Type.INT32, "io.debezium.time.Date"), _days)
    if oid == 1083:
        return _time(modifier, modes.times)
    if oid == 1114:
        return _timestamp(modifier, modes.times)
    if oid == 1184:
        schema = _named(Type.STRING, "io.debezium.time.ZonedTimestamp")
        return PgType(schema, _zoned(modifier if modifier >= 0 else 6))
    if oid in (1560, 1562):
        return _bit_type(modifier, fixed=oid == 1560)
    if oid in _ELEMENTS:
        return _array(pg_type(_ELEMENTS[oid], modifier, modes))
    return _PLAIN.get(oid)


def _own_type(own: OwnType, modifier: int, modes: TypeModes) -> PgType | None:
    if own.labels:
        parameters = {"allowed": own.labels}
        return PgType(
            Schema(Type.STRING, name="io.debezium.data.Enum", version=1, parameters=parameters), str
        )
    if own.kind == "d":
        found = pg_type(own.base, own.modifier, modes)
        return None if found is None else PgType(found.schema, found.parse, has_default=False)
    if own.element and own.name.startswith("_"):
        return _array(pg_type(own.element, modifier, modes))
    return _BY_NAME.get(own.name)


def _array(inner: PgType | None) -> PgType | None:
    if inner is None:
        return None
    # Debezium has labels of enums in arrays as never null.
    item = inner if inner.schema.name == "io.debezium.data.Enum" else inner.nullable()
    return PgType(schemas.array(item.schema), lambda text: array_values(text, item.parse), has_default=False)


def _bit_type(modifier: int, *, fixed: bool) -> PgType:
    if fixed and modifier == 1:
        return PgType(schemas.BOOLEAN, lambda text: text == "1")
    length = str(modifier if modifier >= 0 else _UNLIMITED_BITS)
    schema = Schema(Type.BYTES, name="io.debezium.data.Bits", version=1, parameters={"length": length})
    return PgType(schema, _bits)


def _money_type(mode: str) -> PgType:
    if mode == "double":
        return PgType(schemas.FLOAT64, lambda text: float(_money(text)), has_default=False)
    if mode == "string":
        return PgType(schemas.STRING, lambda text: str(_money(text)), has_default=False)
    return PgType(schemas.decimal_schema(2), _money, has_default=False)


def _numeric(modifier: int, mode: str) -> PgType:
    if mode == "double":
        return PgType(schemas.FLOAT64, float)
    if mode == "string":
        return PgType(schemas.STRING, str)
    if modifier < 4:
        return PgType(_VARIABLE, _variable, has_default=False)
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


def row_parser(types: Sequence[PgType | None]) -> Callable[[Sequence[str | None]], list[ConnectValue]]:
    """One function for a whole row, made of a line of source. Columns without a type are left out.

    >>> row_parser([PgType(schemas.INT32, int), None, PgType(schemas.STRING, str)])(["1", "x", None])
    [1, None]
    """
    names: dict[str, object] = {
        f"parse{number}": one.parse for number, one in enumerate(types) if one is not None
    }
    parts = [
        f"v{number}" if one.parse is str else f"None if v{number} is None else parse{number}(v{number})"
        for number, one in enumerate(types)
        if one is not None
    ]
    values = "".join(f"v{number}, " for number in range(len(types))) or "*_,"
    exec(f"def row(values):\n    {values} = values\n    return [{', '.join(parts)}]", names)
    made: Callable[[Sequence[str | None]], list[ConnectValue]] = names["row"]  # type: ignore[assignment]
    return made


_LITERAL: Final = re.compile(r"'((?:[^']|'')*)'::[\w\s.\"()]+")
_NUMBER: Final = re.compile(r"\(?'?(-?\d+(?:\.\d+)?)'?\)?(?:::[\w\s(),]+)?")
_COMPUTED: Final = ("nextval(", "now()", "CURRENT_", "gen_random_uuid()", "LOCALTIME")


def default_of(found: PgType, expression: str) -> ConnectValue:
    """The value of a default, or None if there is none in a schema. Debezium has zero for what is computed."""
    if not found.has_default or not expression:
        return None
    if expression.startswith(_COMPUTED):
        return _computed(found)
    literal = _LITERAL.fullmatch(expression) or _NUMBER.fullmatch(expression)
    if literal is None and expression not in ("true", "false"):
        return None
    text = expression if literal is None else literal[1].replace("''", "'")
    try:
        value = found.parse(text)
        return fixed(value, found.schema) if found.schema.name == schemas.DECIMAL else value
    except (ValueError, ArithmeticError, TaskFailed):
        return None


def _computed(found: PgType) -> ConnectValue:
    name = found.schema.name or ""
    if name == "io.debezium.data.Uuid":
        return "00000000-0000-0000-0000-000000000000"
    if "time" in name.lower() or name in (schemas.DATE, schemas.TIME, schemas.TIMESTAMP):
        return found.parse("00:00:00+00" if name.endswith("ZonedTime") else "1970-01-01 00:00:00")
    return 0 if found.schema.type in (Type.INT16, Type.INT32, Type.INT64) else None


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
