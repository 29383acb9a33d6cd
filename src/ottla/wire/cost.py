"""The cost of a decoded message: the fewest bytes that a value takes on the wire, the most that it takes in memory.

Sizes are those of 64-bit CPython, rounded up. The decoder refuses counts that the remaining bytes cannot hold. For
frames so large that the floor of `limits` does not cover them, it keeps a memory budget.
"""

from __future__ import annotations

from typing import Final

from ottla.limits import DECODE_FLOOR_BYTES
from ottla.wire.schema import FIXED, Field, Message, Struct

SLOT: Final = 10
"""A slot in a list that grew by appending."""
LIST: Final = 64
VIEW: Final = 192
"""A memory view over a records field."""
UNKNOWN_TAG: Final = 64 + 40 + 32 + SLOT
"""A pair of tag and bytes, without the content of the bytes."""

_VALUE: Final = {
    "bool": 0,
    "int8": 0,
    "int16": 32,
    "uint16": 32,
    "int32": 32,
    "uint32": 32,
    "int64": 32,
    "float64": 32,
    "uuid": 56,
    "records": VIEW,
}


def is_flexible(field: Field, message: Message, version: int) -> bool:
    """The field's length, if it has one, is compact in this version."""
    return version in (message.flexible if field.flexible is None else field.flexible)


def min_wire_size(struct: Struct, message: Message, version: int) -> int:
    """The fewest bytes a struct can take on the wire."""
    size = 1 if version in message.flexible else 0
    for field in struct.fields:
        if version in field.versions and not field.is_tagged(version):
            size += _min_field_size(field, message, version)
    return size


def _min_field_size(field: Field, message: Message, version: int) -> int:
    if field.is_array or field.type in ("string", "bytes", "records"):
        if is_flexible(field, message, version):
            return 1
        return 2 if field.type == "string" and not field.is_array else 4
    if field.struct is not None:
        if version in field.nullable:
            return 1
        return min_wire_size(field.struct, message, version)
    return FIXED[field.type][1]


def min_element_size(field: Field, message: Message, version: int) -> int:
    """The fewest bytes an element of an array takes; at least one, so that every count is checked."""
    if field.struct is not None:
        return max(1, min_wire_size(field.struct, message, version))
    if field.type in FIXED:
        return FIXED[field.type][1]
    if is_flexible(field, message, version):
        return 1
    return 2 if field.type == "string" else 4


def struct_cost(struct: Struct, version: int) -> int:
    """Memory of a struct with its fields, without the content of strings, bytes, lists and tagged fields."""
    cost = 48 + 8 * (len(struct.fields) + 1)
    for field in struct.fields:
        present = version in field.versions and not field.is_tagged(version)
        if field.is_array:
            cost += LIST
        elif field.struct is not None:
            if present:
                cost += struct_cost(field.struct, version)
        elif present:
            cost += _VALUE.get(field.type, 0)
    return cost


def element_cost(field: Field, version: int) -> int:
    """Memory that one more element of an array takes, without the content of strings and similar."""
    if field.struct is not None:
        return SLOT + struct_cost(field.struct, version)
    # Numbers are unpacked into a tuple first, so each has a second slot for a moment.
    return 2 * SLOT + _VALUE.get(field.type, 0)


def tagged_cost(field: Field, version: int) -> int:
    """Memory that a tagged field takes if it is set."""
    if field.is_array:
        return LIST
    if field.struct is not None:
        return struct_cost(field.struct, version)
    return _VALUE.get(field.type, 0)


def unchecked_size(message: Message, version: int) -> int:
    """Frames up to this size cannot decode to more than the floor, whatever they contain."""
    # A string costs at most four bytes of memory for each byte on the wire, and 80 more if it is not empty.
    worst = 4.0 + 80.0
    if version in message.flexible:
        worst = max(worst, UNKNOWN_TAG / 2)
    for struct in (message.root, *message.structs.values()):
        for field in struct.fields:
            if version not in field.versions:
                continue
            if field.is_array:
                size = min_element_size(field, message, version)
                worst = max(worst, element_cost(field, version) / size)
            if field.is_tagged(version):
                worst = max(worst, tagged_cost(field, version) / 3)
    return int(DECODE_FLOOR_BYTES / (worst + 4.0)) - 1024
