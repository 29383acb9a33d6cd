"""Types of JSON documents, and checked ways into them.

A document that was parsed is `Json`. The `as_` functions narrow a part of it, and say what they found instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value. Lists and objects are read-only here, so that a `dict[str, str]` is one too."""
JsonObject: TypeAlias = dict[str, Json]
"""A JSON object that its owner may change."""
JsonList: TypeAlias = list[Json]
"""A JSON array that its owner may change."""


class JsonTypeError(TypeError):
    """A part of a JSON document has another type than its reader needs."""


def as_object(value: Json, what: str = "this value") -> JsonObject:
    """The value as an object. `what` names it in the error."""
    if not isinstance(value, dict):
        raise _wrong(value, what, "an object")
    return value


def as_list(value: Json, what: str = "this value") -> JsonList:
    """The value as an array. `what` names it in the error."""
    if not isinstance(value, list):
        raise _wrong(value, what, "an array")
    return value


def as_text(value: Json, what: str = "this value") -> str:
    """The value as a string. `what` names it in the error."""
    if not isinstance(value, str):
        raise _wrong(value, what, "a string")
    return value


def as_int(value: Json, what: str = "this value") -> int:
    """The value as a whole number. `what` names it in the error."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, what, "a whole number")
    return value


def as_number(value: Json, what: str = "this value") -> float:
    """The value as a number. `what` names it in the error."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(value, what, "a number")
    return value


def to_int(value: Json, what: str = "this value") -> int:
    """The whole number that a value is, or that its text spells, as Python's `int` reads it."""
    if not isinstance(value, (int, float, str)):
        raise _wrong(value, what, "a whole number")
    return int(value)


def _wrong(value: Json, what: str, wanted: str) -> JsonTypeError:
    return JsonTypeError(f"{what} must be {wanted}, and it is {_kind(value)}")


def _kind(value: Json) -> str:
    """The name of the value's JSON type: the value itself may be a secret or very long."""
    if value is None:
        return "null"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return type(value).__name__


_KINDS = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    (Sequence, "an array"),
    (Mapping, "an object"),
)
