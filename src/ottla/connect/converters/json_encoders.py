"""Encoders of JSON that are prepared once for a schema, and then only put texts together.

They know the common cases. Whatever else they meet goes to the converter's own way, which also has the errors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from ottla.connect.data.java_text import PLAIN_BELOW, PLAIN_FROM, quoted
from ottla.connect.data.schema import (
    BOUNDS,
    LOGICAL_TYPES,
    ConnectValue,
    Schema,
    Struct,
    Type,
)
from ottla.connect.failures import DataError

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

    if schema.name in LOGICAL_TYPES:
        return other
    if schema.type in BOUNDS:
        return _whole(*BOUNDS[schema.type], other)
    if schema.type is Type.STRING:
        return lambda value: quoted(value) if type(value) is str else other(value)
    if schema.type is Type.FLOAT64:
        return _double(other)
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


def _double(other: Encode) -> Encode:
    """Between these bounds the texts of Python and Java are equal."""

    def encode(value: ConnectValue) -> str:
        if type(value) is float and PLAIN_FROM <= abs(value) < PLAIN_BELOW:
            return repr(value)
        return other(value)

    return encode


def _struct(schema: Schema, slow: Slow) -> Encode:
    """One function for a whole struct, made of a line of source: most records are structs of plain values."""
    labels = (quoted(at.name).replace("%", "%%") for at in schema.fields)
    names: dict[str, object] = {"schema": schema, "slow": slow, "quoted": quoted, "Struct": Struct}
    names["template"] = "{" + ",".join(f"{label}:%s" for label in labels) + "}"
    parts = []
    for at in schema.fields:
        number, null = at.index, null_text(at.schema, slow)
        encode = encoder_of(at.schema, slow)
        part = _PARTS.get(_part(at.schema))
        if part is None and null is not None:
            part = "null{0} if v{0} is None else other{0}(v{0})"
            names |= {f"null{number}": null, f"other{number}": encode}
        else:
            names[f"other{number}"] = with_null(at.schema, encode, slow)
        parts.append((part or "other{0}(v{0})").format(number, *BOUNDS.get(at.schema.type, ())))
    values = "".join(f"v{at.index}, " for at in schema.fields)
    lines = (
        "def encode(value):",
        "    if type(value) is not Struct or value.schema is not schema:",
        "        return slow(schema, value)",
        f"    {values}= value.values()" if values else "    pass",
        f"    return template % ({''.join(f'{one}, ' for one in parts)})",
    )
    exec("\n".join(lines), names)
    made: Encode = names["encode"]  # type: ignore[assignment]
    return made


_PARTS: Final = {
    "whole": "v{0} if type(v{0}) is int and {1} <= v{0} <= {2} else other{0}(v{0})",
    "text": "quoted(v{0}) if type(v{0}) is str else other{0}(v{0})",
}


def _part(schema: Schema) -> str:
    if schema.name in LOGICAL_TYPES:
        return "logical"
    return "whole" if schema.type in BOUNDS else "text" if schema.type is Type.STRING else "other"


def with_null(schema: Schema, encode: Encode, slow: Slow) -> Encode:
    """The encoder of a field, which also knows its null; the error of a null that must not be is the slow way's."""
    null = null_text(schema, slow)

    def encode_or_null(value: ConnectValue) -> str:
        if value is not None:
            return encode(value)
        return slow(schema, None) if null is None else null

    return encode_or_null


def null_text(schema: Schema, slow: Slow) -> str | None:
    """What stands for null: null itself, or the default; None if null is an error."""
    try:
        return slow(schema, None)
    except DataError:
        return None
