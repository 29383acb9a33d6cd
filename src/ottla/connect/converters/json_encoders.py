"""Encoders of JSON that are prepared once for a schema, and then only put texts together.

They know the common cases. Whatever else they meet goes to the converter's own way, which also has the errors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from ottla.connect.data.java_text import quoted
from ottla.connect.data.schema import (
    BOUNDS,
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    ConnectValue,
    Schema,
    Struct,
    Type,
)
from ottla.connect.failures import DataError

_LOGICAL: Final = frozenset((DATE, DECIMAL, TIME, TIMESTAMP))

Encode = Callable[[ConnectValue], str]
Slow = Callable[[Schema, ConnectValue], str]
"""The JSON of any value, or the error that says why there is none."""


def encoder_of(schema: Schema, slow: Slow) -> Encode:
    """The JSON of values of a schema.

    >>> from ottla.connect.data.schema import INT64
    >>> encoder_of(INT64, lambda schema, value: "null")(7)
    '7'
    """

    def other(value: ConnectValue) -> str:
        return slow(schema, value)

    if schema.name in _LOGICAL:
        return other
    if schema.type in BOUNDS:
        return _whole(*BOUNDS[schema.type], other)
    if schema.type is Type.STRING:
        return lambda value: quoted(value) if type(value) is str else other(value)
    if schema.type is Type.BOOLEAN:
        return lambda value: "true" if value is True else "false" if value is False else other(value)
    if schema.type is Type.BYTES:
        return lambda value: f'"{base64.b64encode(value).decode()}"' if type(value) is bytes else other(value)
    if schema.type is Type.STRUCT:
        return _struct(schema, slow)
    return other


def _whole(lowest: int, highest: int, other: Encode) -> Encode:
    def encode(value: ConnectValue) -> str:
        return str(value) if type(value) is int and lowest <= value <= highest else other(value)

    return encode


def _struct(schema: Schema, slow: Slow) -> Encode:
    encoders = [encoder_of(at.schema, slow) for at in schema.fields]
    labels = (quoted(at.name).replace("%", "%%") for at in schema.fields)
    template = "{" + ",".join(f"{label}:%s" for label in labels) + "}"
    nulls = [_null(at.schema, slow) for at in schema.fields]

    def encode(value: ConnectValue) -> str:
        if type(value) is not Struct or value.schema is not schema:
            return slow(schema, value)
        texts = [
            null if one is None else inner(one)
            for inner, null, one in zip(encoders, nulls, value.values(), strict=False)
        ]
        return slow(schema, value) if None in texts else template % tuple(texts)

    return encode


def _null(schema: Schema, slow: Slow) -> str | None:
    """What stands for null: null itself, or the default; None if null is an error."""
    try:
        return slow(schema, None)
    except DataError:
        return None
