"""The schema table: every message of Kafka 4.3 as names, types, versions, tags and defaults.

The data is in `schemas.jsonl`, one message a line, and is read at first use. `classes`, `decoder` and `encoder` build
classes and codecs from it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ottla.wire.uuid import ZERO_UUID

NEVER: Final = 1 << 15
"""A version number above those of all messages."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty if the first is above the last."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @staticmethod
    def parse(text: str) -> Versions:
        """`3`, `0-2`, `1+` or `none`."""
        if text == "none" or not text:
            return NO_VERSIONS
        if text.endswith("+"):
            return Versions(int(text[:-1]), NEVER - 1)
        first, _, last = text.partition("-")
        return Versions(int(first), int(last or first))


NO_VERSIONS: Final = Versions(NEVER, -1)

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of a fixed width: their `struct` code and width."""


class Field(NamedTuple):
    """One field of a message or struct."""

    name: str
    """In snake case, as the attribute is called."""
    type: str
    """The element's type if it is an array."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    ignorable: bool
    flexible: Versions | None
    """Overrides the message's flexible versions (the client id of request headers)."""
    default: object
    """A plain value; `None` also for null arrays and structs; `NEW` for an empty array or a default struct."""
    struct: Struct | None
    entity_type: str | None
    """What the value identifies: `topicName`, `groupId`, `transactionalId`, `producerId` or `brokerId`."""

    def is_tagged(self, version: int) -> bool:
        return version in self.tagged


NEW: Final = object()
"""The default of arrays and structs: a new one."""


class Struct:
    """A named group of fields: a message itself, or a struct inside of it."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: tuple[Field, ...] = ()


class Message(NamedTuple):
    """One message of the table."""

    name: str
    api_key: int | None
    kind: str
    """`request`, `response`, `header`, `data`, `metadata`, `coordinator-key` or `coordinator-value`."""
    module: str
    """The part of Kafka that owns the message."""
    versions: Versions
    flexible: Versions
    root: Struct
    structs: dict[str, Struct]
    """The structs inside, by their name."""


class _RawField(msgspec.Struct, rename="camel", gc=False):
    name: str
    type: str
    versions: str = ""
    nullable_versions: str = ""
    tagged_versions: str = ""
    tag: int = -1
    ignorable: bool = False
    flexible_versions: str | None = None
    default: str | int | bool | None = None
    entity_type: str | None = None
    fields: list[_RawField] = []


class _RawStruct(msgspec.Struct, rename="camel", gc=False):
    name: str
    fields: list[_RawField]


class _Heading(msgspec.Struct, rename="camel", gc=False):
    name: str
    type: str
    module: str
    valid_versions: str
    flexible_versions: str = "none"
    api_key: int | None = None


class _Body(msgspec.Struct, rename="camel", gc=False):
    fields: list[_RawField] = []
    common_structs: list[_RawStruct] = []


class _Row(NamedTuple):
    """A message of the file. Its fields are read when its schema is first used: a node uses half of the messages."""

    heading: _Heading
    line: bytes


_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(name: str) -> str:
    """`ThrottleTimeMs` as Python writes it."""
    return _BOUNDARY.sub("_", name.replace("KRaft", "Kraft")).lower()


@cache
def _table() -> dict[str, _Row]:
    heading = msgspec.json.Decoder(_Heading)
    lines = Path(__file__).with_name("schemas.jsonl").read_bytes().splitlines()
    rows = (_Row(heading.decode(line), line) for line in lines)
    return {row.heading.name: row for row in rows}


@cache
def message_names() -> tuple[str, ...]:
    """Every message of the table."""
    return tuple(_table())


@cache
def api_message_names() -> dict[tuple[str, int], str]:
    """The name of the request and the response of each API, by kind and API key."""
    return {
        (row.type, row.api_key): row.name
        for row, _ in _table().values()
        if row.type in ("request", "response") and row.api_key is not None
    }


@cache
def first_flexible(name: str) -> int:
    """The first version with compact lengths and tagged fields; `NEVER` if there is none."""
    return Versions.parse(_table()[name].heading.flexible_versions).first


@cache
def message(name: str) -> Message:
    """The schema of one message. KeyError if there is none of that name."""
    row, line = _table()[name]
    body = msgspec.json.decode(line, type=_Body)
    structs: dict[str, Struct] = {}
    declared = {common.name: common.fields for common in body.common_structs}
    _collect(body.fields, declared)
    for common in body.common_structs:
        _collect(common.fields, declared)
    for struct_name in declared:
        structs[struct_name] = Struct(struct_name)
    for struct_name, fields in declared.items():
        structs[struct_name].fields = tuple(_field(raw, structs) for raw in fields)
    root = Struct(name)
    root.fields = tuple(_field(raw, structs) for raw in body.fields)
    return Message(
        name=name,
        api_key=row.api_key,
        kind=row.type,
        module=row.module,
        versions=Versions.parse(row.valid_versions),
        flexible=Versions.parse(row.flexible_versions),
        root=root,
        structs=structs,
    )


def _collect(fields: list[_RawField], into: dict[str, list[_RawField]]) -> None:
    for field in fields:
        if field.fields:
            into[field.type.removeprefix("[]")] = field.fields
            _collect(field.fields, into)


def _field(raw: _RawField, structs: dict[str, Struct]) -> Field:
    element = raw.type.removeprefix("[]")
    is_array = element != raw.type
    tagged = Versions.parse(raw.tagged_versions)
    struct = structs.get(element)
    if struct is None and element not in FIXED and element not in ("string", "bytes", "records"):
        raise ValueError(f"field {raw.name} has the unknown type {raw.type}")
    return Field(
        name=snake_case(raw.name),
        type=element,
        is_array=is_array,
        versions=Versions.parse(raw.versions) if raw.versions else tagged,
        nullable=Versions.parse(raw.nullable_versions),
        tagged=tagged,
        tag=raw.tag,
        ignorable=raw.ignorable,
        flexible=None if raw.flexible_versions is None else Versions.parse(raw.flexible_versions),
        default=_default(raw, element, is_array or struct is not None),
        struct=struct,
        entity_type=raw.entity_type,
    )


def _default(raw: _RawField, element: str, compound: bool) -> object:
    text = "" if raw.default is None else str(raw.default)
    if text == "null" or element == "records":
        return None
    if compound:
        return NEW
    match element:
        case "string":
            return text
        case "bytes":
            return b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return text.lower() == "true"
        case "float64":
            return float(text or 0)
        case _:
            return int(text or "0", 0)
