"""What of a file matters for compatibility, as plain data: messages with their fields, oneofs and enums by full name.

`model_of` runs in the worker; the rest of the registry reads its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}


class FieldModel(TypedDict):
    """A field; its type is the number of `FieldDescriptorProto.Type`."""

    name: str
    type: int
    type_name: str
    label: str
    oneof: str | None


class MessageModel(TypedDict):
    """A message: its fields by number, and whether it is the entry of a map."""

    fields: dict[str, FieldModel]
    map: bool


class FileModel(TypedDict):
    """A file: all messages and enums by full name, and the names of its own messages."""

    package: str
    messages: dict[str, MessageModel]
    enums: dict[str, list[int]]
    own: list[str]


class Compiled(TypedDict):
    """What the worker makes of a schema."""

    text: str
    canonical: str
    serialized: str
    model: FileModel


class Answer(TypedDict):
    """An answer of the worker: what it made, or why the schema is none."""

    done: Compiled | None
    error: str | None


def model_of(own: FileDescriptorProto, files: Iterable[FileDescriptorProto]) -> FileModel:
    """The messages of a file, those it imports included, by full name, and the names of its own."""
    messages: dict[str, MessageModel] = {}
    enums: dict[str, list[int]] = {}
    for file in files:
        scope = f".{file.package}" if file.package else ""
        for one in file.message_type:
            _take(one, scope, messages, enums)
        for one in file.enum_type:
            enums[f"{scope}.{one.name}"] = [each.number for each in one.value]
    scope = f".{own.package}" if own.package else ""
    mine: list[str] = []
    for one in own.message_type:
        _names(one, scope, mine)
    return {"package": own.package, "messages": messages, "enums": enums, "own": mine}


def _names(one: DescriptorProto, scope: str, out: list[str]) -> None:
    if not one.options.map_entry:
        out.append(f"{scope}.{one.name}")
        for each in one.nested_type:
            _names(each, f"{scope}.{one.name}", out)


def _take(
    one: DescriptorProto, scope: str, messages: dict[str, MessageModel], enums: dict[str, list[int]]
) -> None:
    name = f"{scope}.{one.name}"
    fields: dict[str, FieldModel] = {}
    for each in one.field:
        in_oneof = each.HasField("oneof_index") and not each.proto3_optional
        fields[str(each.number)] = {
            "name": each.name,
            "type": each.type,
            "type_name": each.type_name,
            "label": _LABELS.get(each.label, "optional"),
            "oneof": one.oneof_decl[each.oneof_index].name if in_oneof else None,
        }
    messages[name] = {"fields": fields, "map": one.options.map_entry}
    for each in one.enum_type:
        enums[f"{name}.{each.name}"] = [value.number for value in each.value]
    for each in one.nested_type:
        _take(each, name, messages, enums)
