"""How a record names its schema: five bytes before the data, or a guid in a header."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from ottla.schemas.errors import InvalidData

MAGIC: Final = 0
GUID_MAGIC: Final = 1
PREFIX_BYTES: Final = 5
VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"


def prefix(schema_id: int) -> bytes:
    """The magic byte and the id, as Confluent's serializers write them."""
    return b"\0" + schema_id.to_bytes(4, "big")


def guid_header(guid: str) -> bytes:
    """The header's value: another magic byte and the sixteen bytes of the guid."""
    return b"\1" + uuid.UUID(guid).bytes


def header_of(headers: Iterable[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """The value of a header of a record, if it is there."""
    for key, value in headers or ():
        if key == name:
            return value
    return None


def read_header(value: bytes) -> int | str:
    """The id or the guid in a header's value."""
    if len(value) == PREFIX_BYTES and value[0] == MAGIC:
        return int.from_bytes(value[1:5], "big")
    if len(value) == 17 and value[0] == GUID_MAGIC:
        return str(uuid.UUID(bytes=value[1:]))
    raise InvalidData(f"the header of the schema id has {len(value)} bytes that are neither an id nor a guid")


def schema_id_of(data: bytes | None) -> int | None:
    """The schema id in the prefix of a record; None if it has none."""
    if data is None or len(data) < PREFIX_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:5], "big")


def check_prefix(data: bytes) -> int:
    """The schema id in the prefix; InvalidData where there is none."""
    found = schema_id_of(data)
    if found is None:
        first = f"begin with the byte {data[0]}" if data else "are empty"
        raise InvalidData(
            f"the {len(data)} bytes {first}: they have no schema id, so no serializer with a registry wrote them"
        )
    return found
