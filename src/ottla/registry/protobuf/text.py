"""A FileDescriptorProto as .proto text: one spelling for every file that means the same.

Runs in the worker only, which has the protobuf package loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf import descriptor_pb2, text_format

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in _FIELD.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_MAX_RANGE: Final = 1 << 29
_ENUM_MAX: Final = 2147483647
_EDITIONS: Final = {1000: "2023", 1001: "2024"}

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

Entries = dict[str, descriptor_pb2.DescriptorProto]
"""The entry types of a message's maps, by full name."""


class Range(Protocol):
    """Reserved numbers of a message or of an enum."""

    start: int
    end: int


def to_text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The file as text: syntax, package, imports, options, then definitions in their order."""
    out: list[str] = []
    if file.syntax == "editions":
        out.append(f'edition = "{_EDITIONS.get(file.edition, file.edition)}";')
    else:
        out.append(f'syntax = "{file.syntax or "proto2"}";')
    if file.package:
        out.append(f"package {file.package};")
    out.append("")
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    for at, name in enumerate(file.dependency):
        word = "public " if at in public else "weak " if at in weak else ""
        out.append(f'import {word}"{name}";')
    if file.dependency:
        out.append("")
    options = _options(file.options)
    out += [f"option {name} = {value};" for name, value in options]
    if options:
        out.append("")
    writer = _Writer(file)
    for one in file.enum_type:
        out += writer.enum(one, "")
    for one in file.message_type:
        out += writer.message(one, "", f".{file.package}" if file.package else "")
    out += writer.extensions(file.extension, "")
    for one in file.service:
        out += writer.service(one)
    return "\n".join(out).rstrip("\n") + "\n"


class _Writer:
    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._proto3 = file.syntax == "proto3"
        self._editions = file.syntax == "editions"

    def message(self, one: descriptor_pb2.DescriptorProto, pad: str, scope: str) -> list[str]:
        own = f"{scope}.{one.name}"
        out = [f"{pad}message {one.name} {{"]
        inner = pad + "  "
        out += [f"{inner}option {name} = {value};" for name, value in _options(one.options, {"map_entry"})]
        out += _reserved(one.reserved_range, one.reserved_name, inner, _MAX_RANGE - 1, 1, self._editions)
        for each in one.extension_range:
            last = "max" if each.end >= _MAX_RANGE else str(each.end - 1)
            out.append(f"{inner}extensions {each.start}{'' if last == str(each.start) else f' to {last}'};")
        maps = {f"{own}.{each.name}": each for each in one.nested_type if each.options.map_entry}
        groups = {each.type_name for each in one.field if each.type == _FIELD.TYPE_GROUP}
        done: set[int] = set()
        for each in one.field:
            if each.HasField("oneof_index") and not each.proto3_optional:
                if each.oneof_index not in done:
                    done.add(each.oneof_index)
                    out += self._oneof(one, each.oneof_index, inner, maps)
            else:
                out += self._field(each, inner, maps, one)
        for each in one.enum_type:
            out += self.enum(each, inner)
        for each in one.nested_type:
            if not each.options.map_entry and f"{own}.{each.name}" not in groups:
                out += self.message(each, inner, own)
        out += self.extensions(one.extension, inner)
        return [*out, f"{pad}}}"]

    def _oneof(self, one: descriptor_pb2.DescriptorProto, at: int, pad: str, maps: Entries) -> list[str]:
        out = [f"{pad}oneof {one.oneof_decl[at].name} {{"]
        out += [f"{pad}  option {name} = {value};" for name, value in _options(one.oneof_decl[at].options)]
        for each in one.field:
            if each.HasField("oneof_index") and each.oneof_index == at and not each.proto3_optional:
                out += self._field(each, pad + "  ", maps, one, bare=True)
        return [*out, f"{pad}}}"]

    def _field(
        self,
        one: descriptor_pb2.FieldDescriptorProto,
        pad: str,
        maps: Entries,
        owner: descriptor_pb2.DescriptorProto | None = None,
        *,
        bare: bool = False,
    ) -> list[str]:
        entry = maps.get(one.type_name)
        if entry is not None:
            key, value = entry.field
            kind, label = f"map<{_SCALARS[key.type]}, {_type(value)}>", ""
        else:
            kind, label = _type(one), "" if bare else self._label(one)
        options = _options(one.options)
        if one.HasField("default_value"):
            options.insert(0, ("default", _default(one)))
        if one.HasField("json_name") and one.json_name != _json_name(one.name):
            options.append(("json_name", _quoted(one.json_name)))
        shown = f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""
        if one.type == _FIELD.TYPE_GROUP and owner is not None:
            body = next(each for each in owner.nested_type if one.type_name.endswith(f".{each.name}"))
            lines = self.message(body, pad, one.type_name.rpartition(".")[0])
            return [f"{pad}{label}group {body.name} = {one.number} {{", *lines[1:]]
        return [f"{pad}{label}{kind} {one.name} = {one.number}{shown};"]

    def _label(self, one: descriptor_pb2.FieldDescriptorProto) -> str:
        if one.label == _FIELD.LABEL_REPEATED:
            return "repeated "
        if self._proto3:
            return "optional " if one.proto3_optional else ""
        if self._editions:
            return ""
        return "required " if one.label == _FIELD.LABEL_REQUIRED else "optional "

    def enum(self, one: descriptor_pb2.EnumDescriptorProto, pad: str) -> list[str]:
        out = [f"{pad}enum {one.name} {{"]
        out += [f"{pad}  option {name} = {value};" for name, value in _options(one.options)]
        out += _reserved(one.reserved_range, one.reserved_name, pad + "  ", _ENUM_MAX, 0, self._editions)
        for each in one.value:
            options = _options(each.options)
            shown = f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""
            out.append(f"{pad}  {each.name} = {each.number}{shown};")
        return [*out, f"{pad}}}"]

    def extensions(self, fields: Iterable[descriptor_pb2.FieldDescriptorProto], pad: str) -> list[str]:
        by_type: dict[str, list[descriptor_pb2.FieldDescriptorProto]] = {}
        for one in fields:
            by_type.setdefault(one.extendee, []).append(one)
        out: list[str] = []
        for name, each in by_type.items():
            out.append(f"{pad}extend {name} {{")
            for one in each:
                out += self._field(one, pad + "  ", {})
            out.append(f"{pad}}}")
        return out

    def service(self, one: descriptor_pb2.ServiceDescriptorProto) -> list[str]:
        out = [f"service {one.name} {{"]
        out += [f"  option {name} = {value};" for name, value in _options(one.options)]
        for each in one.method:
            taken = f"{'stream ' if each.client_streaming else ''}{each.input_type}"
            given = f"{'stream ' if each.server_streaming else ''}{each.output_type}"
            options = _options(each.options)
            body = "".join(f"\n    option {name} = {value};" for name, value in options)
            out.append(
                f"  rpc {each.name} ({taken}) returns ({given}){f' {{{body}{chr(10)}  }}' if body else ';'}"
            )
        return [*out, "}"]


def _type(one: descriptor_pb2.FieldDescriptorProto) -> str:
    return _SCALARS.get(one.type) or str(one.type_name)


def _default(one: descriptor_pb2.FieldDescriptorProto) -> str:
    if one.type == _FIELD.TYPE_STRING:
        return _quoted(one.default_value)
    if one.type == _FIELD.TYPE_BYTES:
        return f'"{one.default_value}"'
    return str(one.default_value)


def _quoted(text: str | bytes) -> str:
    if isinstance(text, bytes):
        # So Protobuf gives a text with half a character of UTF-16.
        raise ValueError("a text in it is not UTF-8")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _reserved(
    ranges: Iterable[Range], names: Iterable[str], pad: str, most: int, beyond: int, bare: bool
) -> list[str]:
    """Ranges of messages exclude their end, those of enums include it."""
    out = []
    for one in ranges:
        last = one.end - beyond
        shown = "max" if last >= most else str(last)
        out.append(f"{pad}reserved {one.start}{'' if last == one.start else f' to {shown}'};")
    if names:
        out.append(f"{pad}reserved {', '.join(name if bare else _quoted(name) for name in names)};")
    return out


def _options(options: Message, left_out: set[str] | None = None) -> list[tuple[str, str]]:
    """The options that are set, by name and value as text."""
    found: list[tuple[str, str]] = []
    for field, value in options.ListFields():
        name = f"({field.full_name})" if field.is_extension else field.name
        if field.name in (left_out or ()) or name == "uninterpreted_option":
            continue
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        for each in value if repeated else [value]:
            found.append((name, _option_value(field, each)))
    return found


def _option_value(field: FieldDescriptor, value: object) -> str:
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value if known is None else known.name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return f'"{text_format.text_encoding.CEscape(value, as_utf8=False)}"'
    return str(value)
