"""What of a file matters for compatibility, as plain data: messages with their fields, oneofs and enums by full name.

`model_of` runs in the worker; the rest of the registry reads its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}


def model_of(own: Any, files: Iterable[Any]) -> dict[str, Any]:
    """The messages of a file, those it imports included, by full name, and the names of its own."""
    messages: dict[str, Any] = {}
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


def _names(one: Any, scope: str, out: list[str]) -> None:
    if not one.options.map_entry:
        out.append(f"{scope}.{one.name}")
        for each in one.nested_type:
            _names(each, f"{scope}.{one.name}", out)


def _take(one: Any, scope: str, messages: dict[str, Any], enums: dict[str, list[int]]) -> None:
    name = f"{scope}.{one.name}"
    fields: dict[str, Any] = {}
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
