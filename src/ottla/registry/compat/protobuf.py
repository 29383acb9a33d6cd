"""Protobuf compatibility: fields are compared by their numbers, messages by their full names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.registry.compat.avro import Finding
from ottla.registry.limits import MAX_MESSAGES
from ottla.registry.protobuf.model import FieldModel, FileModel

_GROUPS: Final = (
    frozenset({3, 4, 5, 8, 13, 14}),  # int64, uint64, int32, bool, uint32, enum
    frozenset({17, 18}),  # sint32, sint64
    frozenset({9, 12}),  # string, bytes
    frozenset({7, 15}),  # fixed32, sfixed32
    frozenset({6, 16}),  # fixed64, sfixed64
)
"""Scalar types that have the same form on the wire."""
_NAMES: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_MESSAGE, _GROUP = 11, 10
_LENGTH_DELIMITED: Final = (9, 11, 12)

Rename = Callable[[str], str]
"""The reader's full name for one of the writer's."""


def compare(reader: FileModel, writer: FileModel) -> list[Finding]:
    """Why the reader cannot read what the writer wrote; nothing if it can."""
    findings: list[Finding] = []
    own = set(reader["own"])
    renamed = _package_change(reader, writer)
    for name in writer["own"]:
        mine = renamed(name)
        if mine not in own:
            text = f"The reader has no message {mine.lstrip('.')}"
            findings.append(Finding("MESSAGE_REMOVED", f"#/{name.lstrip('.')}", text))
            continue
        _messages(reader, writer, mine, name, renamed, findings)
        if len(findings) >= MAX_MESSAGES:
            break
    return findings[:MAX_MESSAGES]


def _package_change(reader: FileModel, writer: FileModel) -> Rename:
    """A file that moves to another package keeps its messages."""
    old, new = writer["package"], reader["package"]
    before, after = f".{old}." if old else ".", f".{new}." if new else "."

    def renamed(name: str) -> str:
        return after + name.removeprefix(before) if name.startswith(before) else name

    return renamed


def _messages(
    reader: FileModel, writer: FileModel, mine: str, name: str, renamed: Rename, findings: list[Finding]
) -> None:
    ours, theirs = reader["messages"][mine]["fields"], writer["messages"][name]["fields"]
    path = f"#/{mine.lstrip('.')}"
    for number, other in theirs.items():
        one = ours.get(number)
        where = f"{path}/{number}"
        if one is None:
            _removed(other, where, findings)
            continue
        _fields(reader, writer, one, other, where, renamed, findings)
    for number, one in ours.items():
        if number not in theirs and one["label"] == "required":
            text = f"The reader requires the field '{one['name']}', which the writer does not write"
            findings.append(Finding("REQUIRED_FIELD_ADDED", f"{path}/{number}", text))
    _oneofs(ours, theirs, path, findings)


def _removed(other: FieldModel, where: str, findings: list[Finding]) -> None:
    if other["oneof"] is not None:
        text = (
            f"The reader's oneof lacks the field '{other['name']}' of the writer's oneof '{other['oneof']}'"
        )
        findings.append(Finding("ONEOF_FIELD_REMOVED", where, text))
    elif other["label"] == "required":
        text = f"The reader lacks the field '{other['name']}', which the writer requires"
        findings.append(Finding("REQUIRED_FIELD_REMOVED", where, text))


def _fields(
    reader: FileModel,
    writer: FileModel,
    one: FieldModel,
    other: FieldModel,
    where: str,
    renamed: Rename,
    findings: list[Finding],
) -> None:
    mine, theirs = one["type"], other["type"]
    name = one["name"]
    if mine != theirs and not any(mine in group and theirs in group for group in _GROUPS):
        structured = _MESSAGE in (mine, theirs) or _GROUP in (mine, theirs)
        kind = "FIELD_KIND_CHANGED" if structured else "FIELD_SCALAR_KIND_CHANGED"
        text = f"The field '{name}' is {_NAMES[mine]} for the reader and {_NAMES[theirs]} for the writer"
        findings.append(Finding(kind, where, text))
        return
    if mine == theirs == _MESSAGE:
        own_map = _is_map(reader, one)
        their_map = _is_map(writer, other)
        if own_map and their_map:
            _messages(reader, writer, one["type_name"], other["type_name"], renamed, findings)
        elif own_map or their_map:
            findings.append(
                Finding("FIELD_KIND_CHANGED", where, f"The field '{name}' is a map on one side only")
            )
        elif one["type_name"] != renamed(other["type_name"]):
            text = (
                f"The field '{name}' is {one['type_name'].lstrip('.')} for the reader and"
                f" {other['type_name'].lstrip('.')} for the writer"
            )
            findings.append(Finding("FIELD_NAMED_TYPE_CHANGED", where, text))
    repeated = (one["label"] == "repeated", other["label"] == "repeated")
    if repeated[0] != repeated[1] and mine not in _LENGTH_DELIMITED:
        text = f"The field '{name}' is repeated for the {'reader' if repeated[0] else 'writer'} only"
        findings.append(Finding("FIELD_NUMERIC_LABEL_CHANGED", where, text))
    if (one["label"] == "required") and other["label"] != "required":
        text = f"The reader requires the field '{name}', which the writer does not"
        findings.append(Finding("REQUIRED_FIELD_ADDED", where, text))


def _is_map(file: FileModel, field: FieldModel) -> bool:
    found = file["messages"].get(field["type_name"])
    return found is not None and found["map"]


def _oneofs(
    ours: Mapping[str, FieldModel], theirs: Mapping[str, FieldModel], path: str, findings: list[Finding]
) -> None:
    """Fields that the writer may set together must not meet in one oneof of the reader."""
    groups: dict[str, list[str]] = {}
    for number, one in ours.items():
        if one["oneof"] is not None and number in theirs:
            groups.setdefault(one["oneof"], []).append(number)
    for name, numbers in groups.items():
        moved = [number for number in numbers if theirs[number]["oneof"] is None]
        if len(moved) > 1:
            text = f"The fields {', '.join(theirs[one]['name'] for one in moved)} move into the oneof '{name}' together"
            findings.append(Finding("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", text))
        elif moved and len(numbers) > 1:
            text = f"The field '{theirs[moved[0]]['name']}' moves into the oneof '{name}', which was there before"
            findings.append(Finding("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", text))
