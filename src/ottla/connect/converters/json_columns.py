"""JsonConverter by columns: the bytes and values that the converter gives one by one.

What it does not know goes to the converter value by value, and where even a column's values do not fit together, it
raises NotByColumns or an error: the caller then takes the records one by one.
"""

from __future__ import annotations

import base64
import decimal
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.converters.json_encoders import Slow, encoder_of, null_text, with_null
from ottla.connect.data.column_texts import plain_texts
from ottla.connect.data.columns import Column, NotByColumns, Side, packed, side_of, values_of
from ottla.connect.data.java_text import quoted
from ottla.connect.data.schema import BOUNDS, LOGICAL_TYPES, ConnectValue, Schema, Type

if TYPE_CHECKING:
    from ottla.connect.converters.json_converter import JsonNode

_SPECIAL: Final = r'["\\\x00-\x1f]'
_ENVELOPE: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_PAYLOAD: Final = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_MOST_ENVELOPES: Final = 100
_PLAIN_TYPES: Final = (*BOUNDS, Type.FLOAT64, Type.BOOLEAN, Type.STRING)

_NUMBERS: Final = frozenset((int, float, decimal.Decimal, type(None)))
_LOWEST, _HIGHEST = BOUNDS[Type.INT64]

_decode: Final = msgspec.json.Decoder().decode
_decode_exactly: Final = msgspec.json.Decoder(float_hook=decimal.Decimal).decode

# -- to bytes


def json_texts(side: Side, head: str, tail: str, slow: Slow) -> pa.Array:
    """The JSON of each value between two texts, as bytes; the side has a schema."""
    if not side.is_struct:
        assert side.schema is not None
        return _joined([head, _texts(side.schema, side.column, slow), tail])
    parts: list[str | pa.Array] = []
    waiting = head + "{"
    for at, column in zip(side.struct().fields, side.columns, strict=True):
        parts += [f"{waiting}{quoted(at.name)}:", _texts(at.schema, column, slow)]
        waiting = ","
    return _joined([*parts, "}" + tail])


def _joined(parts: list[str | pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "").cast(pa.binary())


def _texts(schema: Schema, column: Column, slow: Slow) -> pa.Array:
    text = _array_texts(schema, column)
    if text is None:
        encode = with_null(schema, encoder_of(schema, slow), slow)
        return pa.array([encode(one) for one in values_of(schema, column)], pa.string())
    if not text.null_count:
        return text
    null = null_text(schema, slow)
    if null is None:
        raise NotByColumns
    return pc.fill_null(text, null)


def _array_texts(schema: Schema, column: Column) -> pa.Array | None:
    """The JSON of the values of an Arrow array; None for those that are taken one by one."""
    if isinstance(column, list):
        return None
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).cast(pa.string())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).cast(pa.string())
    if schema.name in LOGICAL_TYPES:
        return None
    if schema.type is Type.STRING:
        if pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py():
            return pa.array([None if one is None else quoted(one) for one in column.to_pylist()], pa.string())
        return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    if schema.type is Type.BYTES and pa.types.is_binary(kind):
        texts = (None if one is None else f'"{base64.b64encode(one).decode()}"' for one in column.to_pylist())
        return pa.array(list(texts), pa.string())
    if schema.type is Type.FLOAT64 and pc.all(pc.is_finite(column)).as_py() is False:
        return None
    return plain_texts(schema, column)


# -- from bytes


class Envelopes:
    """The beginnings of JSON with a schema that were seen: all records of a producer begin with the same bytes."""

    def __init__(self, parse: Callable[[JsonNode], Schema | None]) -> None:
        self._parse = parse
        self._known: dict[bytes, Schema | None] = {}

    def split(self, data: pa.Array) -> tuple[Schema | None, pa.Array]:
        """The one schema of all records, and their payloads."""
        first = data[0].as_py()
        head = next((one for one in self._known if first.startswith(one)), None)
        if head is None:
            head = self._learn(first)
        count = len(data)
        same = pc.and_(pc.starts_with(data, pattern=head), pc.ends_with(data, pattern=b"}"))
        if data.null_count or pc.sum(same).as_py() != count:
            raise NotByColumns
        return self._known[head], pc.binary_slice(data, len(head), -1)

    def _learn(self, data: bytes) -> bytes:
        begins = _ENVELOPE.match(data)
        if begins is None:
            raise NotByColumns
        text = data[begins.end() :].decode()
        found, end = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_constant).raw_decode(
            text
        )
        payload = _PAYLOAD.match(text, end)
        if payload is None:
            raise NotByColumns
        head = data[: begins.end()] + text[: payload.end()].encode()
        if len(self._known) >= _MOST_ENVELOPES:
            self._known.clear()
        self._known[head] = self._parse(found)
        return head


def _no_constant(name: str) -> NoReturn:
    raise NotByColumns


ToValue = Callable[[Schema | None, "JsonNode"], ConnectValue]
"""The Connect value of one JSON value."""


def json_side(schema: Schema | None, payloads: pa.Array, to_value: ToValue) -> Side:
    """The values of JSON texts, each of which has one value and nothing behind it."""
    if payloads.null_count:
        raise NotByColumns
    if schema is None:
        return side_of(None, _plain_values(payloads, to_value))
    fields = schema.fields if schema.type is Type.STRUCT else ()
    plain = all(map(_is_plain, [at.schema for at in fields] or [schema]))
    decode = _decode if plain else _decode_exactly
    found = [decode(one) for one in payloads.to_pylist()]
    if schema.type is not Type.STRUCT:
        return Side(schema, (_column(schema, found, to_value),))
    if not fields or set(map(type, found)) != {dict}:
        raise NotByColumns
    columns = [_column(at.schema, [one.get(at.name) for one in found], to_value) for at in fields]
    return Side(schema, tuple(columns))


def _column(schema: Schema, found: list[JsonNode], to_value: ToValue) -> Column:
    if _is_plain(schema):
        if schema.type is Type.FLOAT64 and set(map(type, found)) <= _NUMBERS:
            found = [None if one is None else float(one) + 0.0 for one in found]
        if None in found:
            null = to_value(schema, None)
            found = [null if one is None else one for one in found] if null is not None else found
        column = packed(schema, found)
        if isinstance(column, list):
            raise NotByColumns
        return column
    values = [to_value(schema, one) for one in found]
    for one in values:
        schema.validate(one)
    return packed(schema, values)


def _is_plain(schema: Schema) -> bool:
    return schema.type in _PLAIN_TYPES and schema.name not in LOGICAL_TYPES


def _plain_values(payloads: pa.Array, to_value: ToValue) -> list[ConnectValue]:
    """JSON without a schema. Most of it is already what Connect has for it."""
    texts = payloads.to_pylist()
    # Connect's numbers have no negative zero.
    if pc.any(pc.match_substring(payloads, "-0")).as_py():
        return [to_value(None, _decode_exactly(one)) for one in texts]
    found = [_decode(one) for one in texts]
    for one in found:
        _check_numbers(one)
    return found


def _check_numbers(found: JsonNode) -> None:
    kind = type(found)
    if kind is int:
        if not _LOWEST <= found <= _HIGHEST:
            raise NotByColumns
    elif kind is dict:
        for one in found.values():
            if type(one) is not str:
                _check_numbers(one)
    elif kind is list:
        for one in found:
            _check_numbers(one)
