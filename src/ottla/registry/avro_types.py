"""Avro types as objects, and their text as Java's Avro writes it: without spaces, attributes in its order."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from ottla.json_types import Json, JsonObject

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    default: Json = None
    has_default: bool = False
    """Whether there is one: null is a default too."""
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: JsonObject = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroType:
    """One type. `name` is the full name of a record, enum or fixed; a use of a named type is the same object."""

    kind: str
    name: str = ""
    doc: str | None = None
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    aliases: tuple[str, ...] = ()
    props: JsonObject = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


def to_text(root: AvroType, *, known: frozenset[str] = frozenset(), sort_props: bool = False) -> str:
    """The schema as text. `known` are named types of references, which are written by name."""
    document = _Writer(set(known), sort_props=sort_props).write(root, "")
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Writer:
    def __init__(self, written: set[str], *, sort_props: bool) -> None:
        self._written = written
        self._sort = sort_props

    def _props(self, props: JsonObject) -> JsonObject:
        return dict(sorted(props.items())) if self._sort else props

    def write(self, one: AvroType, space: str) -> Json:
        if one.kind in NAMED:
            return self._named(one, space)
        if one.kind == "union":
            return [self.write(branch, space) for branch in one.branches]
        if one.kind == "array":
            assert one.items is not None
            return {"type": "array", "items": self.write(one.items, space), **self._props(one.props)}
        if one.kind == "map":
            assert one.items is not None
            return {"type": "map", "values": self.write(one.items, space), **self._props(one.props)}
        return {"type": one.kind, **self._props(one.props)} if one.props else one.kind

    def _named(self, one: AvroType, space: str) -> Json:
        if one.name in self._written:
            return one.simple_name if one.namespace == space else one.name
        self._written.add(one.name)
        out: JsonObject = {"type": one.kind, "name": one.simple_name}
        if one.namespace != space:
            out["namespace"] = one.namespace
        if one.doc is not None:
            out["doc"] = one.doc
        if one.kind == "enum":
            out["symbols"] = list(one.symbols)
            if one.default is not None:
                out["default"] = one.default
        elif one.kind == "fixed":
            out["size"] = one.size
        else:
            out["fields"] = [self._field(each, one.namespace) for each in one.fields]
        out.update(self._props(one.props))
        if one.aliases:
            out["aliases"] = [_relative(alias, one.namespace) for alias in one.aliases]
        return out

    def _field(self, one: Field, space: str) -> JsonObject:
        out: JsonObject = {"name": one.name, "type": self.write(one.type, space)}
        if one.doc is not None:
            out["doc"] = one.doc
        if one.has_default:
            out["default"] = one.default
        if one.order != "ascending":
            out["order"] = one.order
        if one.aliases:
            out["aliases"] = list(one.aliases)
        out.update(self._props(one.props))
        return out


def _relative(name: str, space: str) -> str:
    prefix, _, plain = name.rpartition(".")
    return plain if prefix == space else name
