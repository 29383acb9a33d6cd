"""Protocol messages as plain data, with the protocol's own names, as kafka-python returns them."""

from __future__ import annotations

import uuid
from typing import Any, Final

from ottla.wire.classes import WireStruct
from ottla.wire.enums import AclOperation

Document = dict[str, Any]
"""A message as plain data: strings, numbers, lists and further documents by field name."""

_NOT_REQUESTED: Final = -(2**31)
_OPERATIONS: Final = [operation for operation in AclOperation if operation >= AclOperation.READ]


def to_dict(message: WireStruct, version: int) -> Document:
    """The fields that a version has, with ids as UUIDs."""
    document: Document = {}
    for field in message.SCHEMA.fields:
        if version in field.versions:
            value = getattr(message, field.name)
            if field.name.endswith("authorized_operations"):
                document["authorized_operations"] = _operations(value)
            else:
                document[field.name] = _plain(value, field.type, version)
    return document


def _operations(bits: int) -> list[str] | None:
    """The operations that a principal may do, by name; None if the request did not ask for them."""
    if bits == _NOT_REQUESTED:
        return None
    return [operation.name for operation in _OPERATIONS if bits >> operation & 1]


def _plain(value: object, kind: str, version: int) -> object:
    if isinstance(value, list | tuple):
        return [_plain(one, kind, version) for one in value]
    if isinstance(value, WireStruct):
        return to_dict(value, version)
    if kind == "uuid" and isinstance(value, bytes):
        return uuid.UUID(bytes=value)
    return bytes(value) if isinstance(value, memoryview) else value
