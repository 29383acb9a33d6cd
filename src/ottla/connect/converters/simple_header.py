"""SimpleHeaderConverter: headers as text, whose type follows from how it looks."""

from __future__ import annotations

import base64
import datetime
import decimal
import logging
import re
from typing import Final

from ottla.connect.converters.base import Converter, SchemaAndValue
from ottla.connect.data import schema as schemas
from ottla.connect.data.java_text import java_double, java_float
from ottla.connect.data.logical import MS_PER_DAY, time_of, timestamp_ms_of, timestamp_of
from ottla.connect.data.schema import BOUNDS, ConnectValue, Schema, Struct, Type
from ottla.connect.failures import DataError

_logger = logging.getLogger(__name__)

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_TOKEN: Final = re.compile(r'\s*(?:([\[\]{}:,])|"((?:\\.|[^"\\])*)"|([^\[\]{}:,"\s][^\[\]{}:,"]*))\s*')
_LARGEST_FLOAT32: Final = 3.4028235677973366e38
_BIGGER_THAN_LONG: Final = decimal.Decimal("1e19")


class SimpleHeaderConverter(Converter):
    """`org.apache.kafka.connect.storage.SimpleHeaderConverter`.

    >>> SimpleHeaderConverter().to_connect("t", b"12")[0].type
    <Type.INT8: 'INT8'>
    """

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The text of a value."""
        return None if value is None else header_text(schema, value).encode("utf-8", "replace")

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The value that a text looks like."""
        if data is None:
            return None, None
        try:
            return parse_text(data.decode("utf-8", "replace"))
        except (DataError, RecursionError) as error:
            _logger.warning("a header of topic %s is not text that can be parsed: %s", topic, error)
            return schemas.BYTES, data


def header_text(schema: Schema | None, value: ConnectValue, embedded: bool = False) -> str:
    """The text of a value, quoted inside of lists and maps."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = schema is not None and schema.type is Type.FLOAT32
        return java_float(value) if short else java_double(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if embedded else value
    if isinstance(value, (bytes, bytearray)):
        text = base64.b64encode(value).decode()
        return f'"{text}"' if embedded else text
    if isinstance(value, (list, tuple)):
        items = schema.value_schema if schema is not None else None
        return "[" + ",".join(header_text(items, one, True) for one in value) + "]"
    if isinstance(value, dict):
        keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
        entries = (
            f"{header_text(keys, key, True)}:{header_text(values, one, True)}" for key, one in value.items()
        )
        return "{" + ",".join(entries) + "}"
    if isinstance(value, Struct):
        entries = (
            f'"{at.name}":{header_text(at.schema, value.get(at.name), True)}' for at in value.schema.fields
        )
        return "{" + ",".join(entries) + "}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return _temporal_text(value)
    return str(value)


def _temporal_text(value: datetime.date | datetime.time) -> str:
    if isinstance(value, datetime.time):
        return f"{value:%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if not isinstance(value, datetime.datetime):
        return value.isoformat()
    ms = timestamp_ms_of(value)
    if ms < MS_PER_DAY:
        return f"{value:%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if ms % MS_PER_DAY == 0:
        return value.date().isoformat()
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def parse_text(text: str) -> SchemaAndValue:
    """The value of a text: null, a boolean, number, date, time, list or map, else the text itself."""
    if not text:
        return schemas.STRING, text
    stripped = text.strip()
    found = _scalar(stripped)
    if found is not None:
        return found
    if stripped[:1] in ("[", "{"):
        try:
            parsed, rest = _embedded(_tokens(stripped))
            if not rest:
                return parsed
        except DataError as error:
            _logger.debug("a header is taken as text: %s", error)
    return schemas.STRING, text


def _scalar(text: str) -> SchemaAndValue | None:
    if text == "null":
        return None, None
    if text in ("true", "false"):
        return schemas.BOOLEAN, text == "true"
    temporal = _temporal(text)
    if temporal is not None:
        return temporal
    return _number(decimal.Decimal(text)) if _NUMBER.fullmatch(text) else None


def _temporal(text: str) -> SchemaAndValue | None:
    plain = text.replace("\\:", ":")
    try:
        if _TIMESTAMP.fullmatch(plain):
            at = datetime.datetime.fromisoformat(plain)
            return schemas.TIMESTAMP_SCHEMA, timestamp_of(timestamp_ms_of(at))
        if _DATE.fullmatch(plain):
            return schemas.DATE_SCHEMA, datetime.date.fromisoformat(plain)
        if _TIME.fullmatch(plain):
            at = datetime.datetime.fromisoformat(f"1970-01-01T{plain}")
            return schemas.TIME_SCHEMA, time_of(timestamp_ms_of(at))
    except ValueError:
        return None
    return None


def _number(value: decimal.Decimal) -> SchemaAndValue:
    size, exponent = abs(value), value.as_tuple().exponent
    whole = value == value.to_integral_value() if size <= _BIGGER_THAN_LONG else False
    if whole and size <= _BIGGER_THAN_LONG:
        for kind, (low, high) in BOUNDS.items():
            if low <= int(value) <= high:
                return Schema(kind), int(value)
    if exponent != 0:
        if float(size) < _LARGEST_FLOAT32:
            return schemas.FLOAT32, float(value)
        if float(size) != float("inf"):
            return schemas.FLOAT64, float(value)
    assert isinstance(exponent, int)
    return schemas.decimal_schema(-exponent), value


Token = tuple[str, str]


def _tokens(text: str) -> list[Token]:
    """The tokens of a list or map: a delimiter, a quoted text or a bare word."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise DataError(f"the text cannot be read on from character {at}")
        delimiter, quoted, bare = match.groups()
        if delimiter is not None:
            tokens.append((delimiter, delimiter))
        elif quoted is not None:
            tokens.append(('"', re.sub(r"\\(.)", r"\1", quoted)))
        else:
            tokens.append(("", bare.strip()))
        at = match.end()
    return tokens


def _embedded(tokens: list[Token]) -> tuple[SchemaAndValue, list[Token]]:
    if not tokens:
        raise DataError("a value is missing")
    (kind, text), rest = tokens[0], tokens[1:]
    if kind == '"':
        return _temporal(text) or (schemas.STRING, text), rest
    if kind == "":
        found = _scalar(text)
        if found is None:
            raise DataError("Failed to parse embedded value")
        return found, rest
    if kind == "[":
        return _list(rest)
    if kind == "{":
        return _map(rest)
    raise DataError(f"a value cannot begin with {kind}")


def _list(tokens: list[Token]) -> tuple[SchemaAndValue, list[Token]]:
    found: list[SchemaAndValue] = []
    while tokens and tokens[0][0] != "]":
        one, tokens = _embedded(tokens)
        found.append(one)
        if tokens and tokens[0][0] == ",":
            tokens = tokens[1:]
        elif not tokens or tokens[0][0] != "]":
            raise DataError("Array elements missing ',' delimiter")
    if not tokens:
        raise DataError("Array is missing terminating ']'")
    schema = Schema(Type.ARRAY, value_schema=_common(found))
    return (schema, [one for _, one in found]), tokens[1:]


def _map(tokens: list[Token]) -> tuple[SchemaAndValue, list[Token]]:
    keys: list[SchemaAndValue] = []
    values: list[SchemaAndValue] = []
    while tokens and tokens[0][0] != "}":
        key, tokens = _embedded(tokens)
        if not tokens or tokens[0][0] != ":" or key[1] is None:
            raise DataError("Map entry is missing ':'")
        value, tokens = _embedded(tokens[1:])
        keys.append(key)
        values.append(value)
        if tokens and tokens[0][0] == ",":
            tokens = tokens[1:]
    if not tokens:
        raise DataError("Map is missing terminating '}'")
    schema = Schema(Type.MAP, key_schema=_common(keys), value_schema=_common(values))
    return (schema, {key: one for (_, key), (_, one) in zip(keys, values, strict=True)}), tokens[1:]


def _common(found: list[SchemaAndValue]) -> Schema | None:
    """The schema that all values have, the widest of numbers; None where they have none in common."""
    kinds = [schema for schema, _ in found if schema is not None]
    if not kinds:
        return None
    numbers = [*BOUNDS, Type.FLOAT32, Type.FLOAT64]
    if all(one.type in numbers and one.name is None for one in kinds):
        widest = max(kinds, key=lambda one: numbers.index(one.type))
        nullable = len(kinds) < len(found)
        return schemas.optional(widest) if nullable else widest
    if any(one != kinds[0] for one in kinds):
        raise DataError("the elements have no schema in common")
    return schemas.optional(kinds[0]) if len(kinds) < len(found) else kinds[0]
