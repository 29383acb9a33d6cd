"""Finds an error code in a response: its own `error_code`, or that of an entry in its lists.

The schema of each response class decides once where its error codes are. A response without any costs one lookup.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.wire.classes import WireResponse, WireStruct
    from ottla.wire.schema import Struct


class _ErrorFields(msgspec.Struct, frozen=True):
    """Where a struct has error codes."""

    own: bool
    """The struct has an `error_code`."""
    lists: tuple[tuple[str, _ErrorFields], ...]
    """Its lists of structs that have error codes."""


def error_codes(response: WireResponse, limit: int) -> list[int]:
    """The error codes in a response, its own and those of its entries, of at most `limit` of them."""
    fields = _error_fields_of(type(response))
    found: list[int] = []
    if fields is not None:
        _collect(response, fields, found, limit)
    return found


def _collect(struct: WireStruct, fields: _ErrorFields, found: list[int], limit: int) -> int:
    """Add the codes of a struct. Returns how many more structs may be looked at."""
    if fields.own and (code := getattr(struct, "error_code")):  # noqa: B009 - only some structs have the field
        found.append(code)
    for name, inner in fields.lists:
        for entry in getattr(struct, name) or ():
            if limit <= 0:
                return 0
            limit = _collect(entry, inner, found, limit - 1)
    return limit


def reports(response: WireResponse, code: ErrorCode) -> bool:
    """Whether a response reports this error, for itself or for one of its entries."""
    fields = _error_fields_of(type(response))
    return fields is not None and _reports(response, fields, code)


@cache
def _error_fields_of(cls: type[WireResponse]) -> _ErrorFields | None:
    return _error_fields(cls.SCHEMA)


def _error_fields(struct: Struct) -> _ErrorFields | None:
    lists = []
    for field in struct.fields:
        inner = _error_fields(field.struct) if field.is_array and field.struct is not None else None
        if inner is not None:
            lists.append((field.name, inner))
    own = any(field.name == "error_code" for field in struct.fields)
    return _ErrorFields(own, tuple(lists)) if own or lists else None


def _reports(struct: WireStruct, fields: _ErrorFields, code: ErrorCode) -> bool:
    if fields.own and getattr(struct, "error_code") == code:  # noqa: B009 - only some structs have the field
        return True
    return any(
        _reports(entry, inner, code) for name, inner in fields.lists for entry in getattr(struct, name) or ()
    )
