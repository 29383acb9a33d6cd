"""JSON Schemas as trees of types, for columns and structs: what a document may be, not what it must hold.

A union of null and one type is that type, optional. Other unions, and schemas that allow everything, have no type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.schemas.errors import SchemaError

SCALARS: Final = ("string", "integer", "number", "boolean")
_MAX_DEPTH: Final = 50
_MAX_TYPES: Final = 20_000


@dataclass(frozen=True, slots=True)
class JsonType:
    """One type: a scalar, an `array` of items, a `map` of items, or an `object` with fields."""

    kind: str
    optional: bool = False
    document: Mapping[str, Json] = field(default_factory=dict, repr=False)
    """The part of the schema that says so, with its hints."""
    fields: tuple[tuple[str, JsonType], ...] = ()
    items: JsonType | None = None
    keys: JsonType | None = None
    """Of a map that is written as a list of entries, because its keys are no texts."""


def json_type(text: str, others: Mapping[str, str]) -> JsonType:
    """The type of a schema. `others` are the texts of the schemas that it references, by name."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not JSON: {error}") from None
    return _Reader(others).type(root, root, 0, optional=False)


class _Reader:
    def __init__(self, others: Mapping[str, str]) -> None:
        self._others = others
        self._left = _MAX_TYPES

    def type(self, root: Json, document: Json, depth: int, *, optional: bool) -> JsonType:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise SchemaError(
                f"the JSON Schema has more than {_MAX_DEPTH} levels or {_MAX_TYPES} types; it may contain itself"
            )
        if not isinstance(document, dict):
            raise SchemaError("a JSON Schema that allows everything or nothing has no type here")
        if "$ref" in document:
            root, found = self._referenced(root, str(document["$ref"]))
            return self.type(root, found, depth + 1, optional=optional)
        for word in ("oneOf", "anyOf"):
            if word in document:
                others, nullable = _without_null(document[word], word)
                return self.type(root, others, depth + 1, optional=optional or nullable)
        kind = document.get("type")
        if isinstance(kind, list):
            kind, nullable = _without_null(kind, "type")
            optional = optional or nullable
        if kind is None and isinstance(document.get("enum"), list):
            kind = "string" if all(isinstance(one, str) for one in document["enum"]) else None
        if isinstance(kind, str) and kind in SCALARS:
            return JsonType(kind, optional, document)
        if kind == "array":
            return self._array(root, document, depth, optional)
        if kind == "object":
            return self._object(root, document, depth, optional)
        raise SchemaError(f"the type {kind!r} of a JSON Schema has no type here")

    def _array(self, root: Json, document: JsonObject, depth: int, optional: bool) -> JsonType:
        items = document.get("items")
        if document.get("connect.type") == "map" and isinstance(items, dict):
            entry = _object_of(items, "properties")
            keys = self.type(root, entry.get("key"), depth + 1, optional=False)
            values = self.type(root, entry.get("value"), depth + 1, optional=False)
            return JsonType("map", optional, document, items=values, keys=keys)
        return JsonType("array", optional, document, items=self.type(root, items, depth + 1, optional=False))

    def _object(self, root: Json, document: JsonObject, depth: int, optional: bool) -> JsonType:
        values, properties = document.get("additionalProperties"), _object_of(document, "properties")
        if document.get("connect.type") == "map" or (not properties and isinstance(values, dict)):
            return JsonType(
                "map", optional, document, items=self.type(root, values, depth + 1, optional=False)
            )
        required = document.get("required")
        names = required if isinstance(required, list) else ()
        fields = []
        for name, each in sorted(properties.items(), key=lambda one: _index(one[1])):
            # Connect's converters mark what may be missing with null; other writers leave it out of `required`.
            foreign = not (isinstance(each, dict) and "connect.index" in each)
            found = self.type(root, each, depth + 1, optional=foreign and name not in names)
            fields.append((name, found))
        return JsonType("object", optional, document, tuple(fields))

    def _referenced(self, root: Json, reference: str) -> tuple[Json, Json]:
        """The document that a reference leads into, and the place in it."""
        name, _, pointer = reference.partition("#")
        if name:
            if name not in self._others:
                raise SchemaError(f"the JSON Schema refers to {name[:200]}, which is none of its references")
            root = json.loads(self._others[name])
        found = root
        for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise SchemaError(f"the JSON Schema has nothing at {reference[:200]}")
            found = found[key]
        return root, found


def _without_null(given: Json, word: str) -> tuple[Json, bool]:
    if not isinstance(given, list):
        raise SchemaError(f"{word} of a JSON Schema is a list here")
    others = [
        one for one in given if one != "null" and not (isinstance(one, dict) and one.get("type") == "null")
    ]
    if len(others) != 1:
        raise SchemaError(f"{word} of a JSON Schema has a type here only with null and one other")
    return others[0], len(others) < len(given)


def _object_of(document: JsonObject, word: str) -> JsonObject:
    found = document.get(word) or {}
    if not isinstance(found, dict):
        raise SchemaError(f"{word} of a JSON Schema is an object")
    return found


def _index(document: Json) -> int:
    found = document.get("connect.index", 0) if isinstance(document, dict) else 0
    return found if isinstance(found, int) else 0
