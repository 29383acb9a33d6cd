"""The files of a spool folder as rows: CSV, JSON objects one after the other, or lines."""

from __future__ import annotations

import csv
import decimal
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

from ottla.connect.data import schema as schemas
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.failures import ConfigInvalid, DataError
from ottla.json_types import Json, JsonObject

_CHUNK: Final = 1 << 16
_LONGEST: Final = 16 << 20
_TRUE: Final = {"true": True, "false": False}
_JSON_TYPES: Final = {
    bool: schemas.BOOLEAN,
    int: schemas.INT64,
    float: schemas.FLOAT64,
    str: schemas.STRING,
}


class BadRow(DataError):
    """A part of a file cannot be read. The text says where and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row's value and its size in the file, about."""

    value: ConnectValue
    schema: Schema
    size: int


Rows = Callable[[TextIO], Iterator[Row]]
"""Reads a file from its start."""


def spool_schema(text: str, what: str) -> Schema | None:
    """The schema that a key has in the original's JSON form; None for an empty key.

    >>> spool_schema('{"type":"STRUCT","fieldSchemas":{"id":{"type":"INT64"}}}', "value.schema").fields[0].name
    'id'
    """
    if not text.strip():
        return None
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("type") != "STRUCT":
            raise ConfigInvalid(f'{what}: the schema is an object with "type": "STRUCT" and "fieldSchemas"')
        fields = [(name, _field_schema(one)) for name, one in found["fieldSchemas"].items()]
        return schemas.struct(fields, name=found.get("name"))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigInvalid(f"{what}: the schema cannot be read: {error!r}") from None


def _field_schema(found: Mapping[str, Json]) -> Schema:
    kind, name = Type(str(found["type"])), found.get("name")
    optional = found.get("isOptional") is True
    if name == schemas.DECIMAL:
        parameters = found.get("parameters")
        scale = parameters.get(schemas.SCALE, "0") if isinstance(parameters, dict) else "0"
        return schemas.decimal_schema(int(str(scale)), optional=optional)
    if name is not None or not kind.is_primitive or kind is Type.BYTES:
        raise ValueError(f"fields of type {name or kind} are not read from files")
    return Schema(kind, optional=optional)


def value_of(schema: Schema, text: str, where: str) -> ConnectValue:
    """A text as a value of a type; an empty one is null where it may be, unless it is a string."""
    if not text and schema.type is not Type.STRING and schema.optional:
        return None
    try:
        if schema.name == schemas.DECIMAL:
            scale = int((schema.parameters or {}).get(schemas.SCALE, "0"))
            return decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-scale))
        if schema.type in schemas.BOUNDS:
            return int(text)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return float(text)
        if schema.type is Type.BOOLEAN:
            return _TRUE[text.strip().lower()]
    except (ValueError, KeyError, decimal.InvalidOperation):
        raise BadRow(f"{where}: {text[:100]!r} is no {schema.type}") from None
    return text


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma separated values."""

    header: bool
    separator: str
    quote: str
    escape: str | None
    skip_lines: int
    empty_is_null: bool
    schema: Schema | None

    def __call__(self, file: TextIO) -> Iterator[Row]:
        """The rows of a file."""
        for _ in range(self.skip_lines):
            file.readline()
        reader = csv.reader(
            file, delimiter=self.separator, quotechar=self.quote, escapechar=self.escape, strict=True
        )
        names: list[str] | None = None
        schema = self.schema
        try:
            for cells in reader:
                if not cells:
                    continue
                if names is None:
                    names = self._names(cells)
                    schema = schema or _texts(names)
                    if self.header:
                        continue
                assert schema is not None
                yield self._row(schema, names, cells, f"line {reader.line_num}")
        except csv.Error as error:
            raise BadRow(f"line {reader.line_num}: {error}") from None

    def _names(self, cells: list[str]) -> list[str]:
        if self.header:
            return [one.strip() for one in cells]
        if self.schema is not None:
            return [at.name for at in self.schema.fields]
        return [f"column{number:02d}" for number in range(1, len(cells) + 1)]

    def _row(self, schema: Schema, names: list[str], cells: list[str], where: str) -> Row:
        if len(cells) != len(names):
            raise BadRow(f"{where}: {len(cells)} fields, but the file has {len(names)} columns")
        found = dict(zip(names, cells, strict=True))
        row = Struct(schema)
        for at in schema.fields:
            text = found.get(at.name)
            if text is None or (not text and self.empty_is_null and at.schema.optional):
                if not at.schema.optional:
                    raise BadRow(f"{where}: there is no column {at.name}")
                continue
            row.put(at.name, value_of(at.schema, text, f"{where}, column {at.name}"))
        return Row(row, schema, sum(map(len, cells)) + len(cells))


def _texts(names: list[str]) -> Schema:
    """What is known of columns without a schema."""
    return schemas.struct([(name, schemas.OPTIONAL_STRING) for name in names])


def lines(file: TextIO) -> Iterator[Row]:
    """Each line is a value."""
    for line in file:
        yield Row(line.rstrip("\r\n"), schemas.STRING, len(line))


def json_texts(file: TextIO) -> Iterator[Row]:
    """Each JSON value is a text, without white space."""
    for found, size in _values(file):
        yield Row(json.dumps(found, ensure_ascii=False, separators=(",", ":")), schemas.STRING, size)


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON objects, one after the other; without a schema, the first one of a file says what the fields are."""

    schema: Schema | None

    def __call__(self, file: TextIO) -> Iterator[Row]:
        """The rows of a file."""
        schema = self.schema
        for number, (found, size) in enumerate(_values(file), 1):
            where = f"value {number}"
            if not isinstance(found, dict):
                raise BadRow(f"{where}: is no object")
            schema = schema or _inferred(found, where)
            row = Struct(schema)
            if more := [name for name in found if not schema.has(name)]:
                raise BadRow(f"{where}: {more[0]} is not in the schema: set value.schema")
            for at in schema.fields:
                row.put(at.name, _json_value(at.schema, found.get(at.name), f"{where}, field {at.name}"))
            yield Row(row, schema, size)


def _inferred(found: JsonObject, where: str) -> Schema:
    fields = []
    for name, value in found.items():
        kind = _JSON_TYPES.get(type(value))
        if kind is None:
            raise BadRow(f"{where}: the type of {name} does not follow from its value: set value.schema")
        fields.append((name, schemas.optional(kind)))
    return schemas.struct(fields)


def _json_value(schema: Schema, value: Json, where: str) -> ConnectValue:
    if value is None:
        if not schema.optional:
            raise BadRow(f"{where}: is missing")
        return None
    if isinstance(value, list | dict):
        raise BadRow(f"{where}: is no {schema.type}")
    if schema.type is Type.STRING:
        return value if isinstance(value, str) else json.dumps(value)
    return value_of(schema, str(value), where)


def _values(file: TextIO) -> Iterator[tuple[Json, int]]:
    decoder = json.JSONDecoder()
    waiting, ended = "", False
    while True:
        waiting = waiting.lstrip(" \t\r\n,") if waiting[:1] in " \t\r\n," else waiting
        if waiting:
            try:
                found, end = decoder.raw_decode(waiting)
                # A number may go on in the next piece.
                if ended or end < len(waiting):
                    yield found, end
                    waiting = waiting[end:]
                    continue
            except (ValueError, RecursionError) as error:
                if ended or len(waiting) > _LONGEST:
                    raise BadRow(f"the JSON cannot be read: {error}") from None
        elif ended:
            return
        piece = file.read(_CHUNK)
        ended = not piece
        waiting += piece
