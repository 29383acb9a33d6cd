"""Messages of the schema table as JSON, in the form that Kafka's own converters give them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast

from ottla.wire.classes import WireStruct
from ottla.wire.primitives import Buffer
from ottla.wire.schema import NEW, Field
from ottla.wire.uuid import uuid_to_str

_WORD: Final = re.compile(r"_(.)")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-f]{4}|.)")


def as_text(document: object) -> str:
    """JSON without a space more than needed, and with the digits of escaped characters as Kafka has them: A to F."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(_in_capitals, text) if "\\u" in text else text


def _in_capitals(found: re.Match[str]) -> str:
    return f"\\u{found[1][1:].upper()}" if len(found[1]) > 1 else found[0]


Document = dict[str, Any]
"""A JSON object."""


def as_document(message: WireStruct, version: int) -> Document:
    """A message or struct by the names of its fields; a tagged field with its default is left out."""
    document: Document = {}
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if version not in field.versions or (field.is_tagged(version) and _is_default(field, value)):
            continue
        document[camel_case(field.name)] = _value(field, value, version)
    return document


def camel_case(name: str) -> str:
    """The name of a field in JSON."""
    spelled = _WORD.sub(lambda found: found[1].upper(), name)
    return "kRaft" + spelled[5:] if spelled.startswith("kraft") else spelled


def _is_default(field: Field, value: object) -> bool:
    if field.default is not NEW:
        return bool(value == field.default)
    return value is not None and bool(value == type(value)())


def _value(field: Field, value: object, version: int) -> object:
    if value is None:
        return None
    if field.is_array:
        return [_element(field, each, version) for each in cast("Iterable[object]", value)]
    return _element(field, value, version)


def _element(field: Field, value: object, version: int) -> object:
    if field.struct is not None:
        return as_document(cast("WireStruct", value), version)
    if field.type == "uuid":
        return uuid_to_str(cast("bytes", value))
    if field.type in ("bytes", "records"):
        return base64.b64encode(bytes(cast("Buffer", value))).decode()
    return value
