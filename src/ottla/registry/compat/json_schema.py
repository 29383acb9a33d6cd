"""JSON Schema compatibility: every document that the writer's schema accepts must be one that the reader's accepts.

Objects may be open (other properties are allowed), closed (they are not) or partly open (they fit a schema).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.registry.compat.avro import Finding
from ottla.registry.compat.budget import Budget
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_schema import TYPES, JsonSchema, step
from ottla.registry.limits import MAX_MESSAGES

_SUMS: Final = ("oneOf", "anyOf")
_LOWER: Final = (
    ("string", "minLength"),
    ("array", "minItems"),
    ("object", "minProperties"),
    ("number", "minimum"),
)
_UPPER: Final = (
    ("string", "maxLength"),
    ("array", "maxItems"),
    ("object", "maxProperties"),
    ("number", "maximum"),
)
_MAX_REFS: Final = 100
_MAX_MERGED: Final = 50


def compare(reader: JsonSchema, writer: JsonSchema, budget: Budget | None = None) -> list[Finding]:
    """Why the reader does not accept all that the writer does; nothing if it does."""
    comparison = _Comparison(budget or Budget())
    comparison.pair((reader.document, reader), (writer.document, writer), "")
    return comparison.findings


Keywords = Mapping[str, Json]
"""A subschema that is an object, which the parser has checked."""
Search = Callable[[str], re.Match[str] | None]
Place = tuple[Json, JsonSchema]
"""A subschema and the document that its references are resolved in."""


class _Comparison:
    def __init__(self, budget: Budget) -> None:
        budget.begin()
        self._budget = budget
        self.findings: list[Finding] = []
        self._seen: dict[tuple[int, int], bool] = {}
        self._quiet = 0
        self._kept: list[Json] = []
        self._searches: dict[str, Search | None] = {}

    def _find(self, kind: str, path: str, message: str) -> bool:
        if not self._quiet and len(self.findings) < MAX_MESSAGES:
            self.findings.append(Finding(kind, "#" + path, message))
        return False

    def _quietly(self, reader: Place, writer: Place, path: str) -> bool:
        self._quiet += 1
        try:
            return self.pair(reader, writer, path)
        finally:
            self._quiet -= 1

    def pair(self, reader: Place, writer: Place, path: str) -> bool:
        """Whether the reader's subschema accepts all that the writer's does."""
        self._budget.pair()
        self._budget.entries(len(_keywords(reader[0])) + len(_keywords(writer[0])))
        reader, writer = _resolved(reader), _resolved(writer)
        self._budget.entries(len(_keywords(reader[0])) + len(_keywords(writer[0])))
        key = (id(reader[0]), id(writer[0]))
        if key in self._seen:
            return self._seen[key]
        self._seen[key] = True
        self._kept += [reader[0], writer[0]]
        fits = self._schemas(reader, writer, path)
        if not fits and self._quiet:
            # A quiet answer has no message: ask again where one is wanted.
            del self._seen[key]
        else:
            self._seen[key] = fits
        return fits

    def _schemas(self, reader: Place, writer: Place, path: str) -> bool:
        r, w = reader[0], _keywords(writer[0])
        if r is True or r == {} or writer[0] is False:
            return True
        if r is False:
            return self._find("TYPE_NARROWED", path, "The reader's schema accepts nothing here")
        if reader[1] is writer[1] and r == w:
            return True
        for word in _SUMS:
            if word in w:
                rest = {key: value for key, value in w.items() if key != word}
                fits = True
                for at, each in enumerate(_list_of(w, word)):
                    part = self._merged(rest, each, writer[1])
                    fits = self.pair(reader, (part, writer[1]), f"{path}/{word}/{at}") and fits
                return fits
        if "allOf" in w:
            merged: Json = {key: value for key, value in w.items() if key != "allOf"}
            for each in _list_of(w, "allOf")[:_MAX_MERGED]:
                merged = self._merged(_keywords(merged), each, writer[1]) if merged is not False else False
            return self.pair(reader, (merged, writer[1]), path)
        return self._products(reader, (w, writer[1]), path)

    def _merged(self, first: Keywords, second: Json, document: JsonSchema) -> Json:
        self._budget.entries(len(first) + len(_keywords(second)))
        return _merge(first, second, document)

    def _products(self, reader: Place, writer: Place, path: str) -> bool:
        r = _keywords(reader[0])
        fits = True
        if "allOf" in r:
            for at, each in enumerate(_list_of(r, "allOf")):
                fits = self.pair((each, reader[1]), writer, f"{path}/allOf/{at}") and fits
        for word in _SUMS:
            if word in r and not any(
                self._quietly((each, reader[1]), writer, path) for each in _list_of(r, word)
            ):
                text = f"No branch of the reader's {word} accepts what the writer's schema does"
                fits = self._find("SUM_TYPE_NARROWED", f"{path}/{word}", text)
        if "not" in r:
            fits = self._nots(reader, writer, path) and fits
        return self._plain(reader, writer, path) and fits

    def _nots(self, reader: Place, writer: Place, path: str) -> bool:
        # What the reader forbids, the writer must forbid too.
        theirs = (_keywords(writer[0]).get("not", False), writer[1])
        if self._quietly(theirs, (_keywords(reader[0])["not"], reader[1]), path):
            return True
        return self._find("NOT_TYPE_NARROWED", f"{path}/not", "The reader forbids what the writer allows")

    def _plain(self, reader: Place, writer: Place, path: str) -> bool:
        r, w = _keywords(reader[0]), _keywords(writer[0])
        values = _values(w)
        allowed = _values(r)
        if allowed is not None:
            known = {self._frozen(one) for one in allowed}
            missing = None if values is None else [one for one in values if self._frozen(one) not in known]
            if missing is None or missing:
                shown = "any value" if missing is None else ", ".join(map(repr, missing[:5]))
                return self._find("ENUM_ARRAY_NARROWED", f"{path}/enum", f"The reader does not allow {shown}")
        types = _types(w) if values is None else {_type_of(one) for one in values}
        readable = _types(r)
        lost = sorted(
            one for one in types if one not in readable and not (one == "integer" and "number" in readable)
        )
        if lost:
            kind = "TYPE_CHANGED" if len(lost) == len(types) else "TYPE_NARROWED"
            return self._find(kind, f"{path}/type", f"The reader does not accept the type {', '.join(lost)}")
        if values is not None:
            return True
        fits = self._bounds(r, w, types, path)
        if "array" in types:
            fits = self._arrays(reader, writer, path) and fits
        if "object" in types:
            fits = self._objects(reader, writer, path) and fits
        return fits

    def _frozen(self, value: Json) -> Hashable:
        """A JSON value as one that sets take: equal for equal values, as JSON Schema has it (1 is 1.0, not true)."""
        self._budget.entries(1)
        if isinstance(value, dict):
            return ("object", frozenset((name, self._frozen(each)) for name, each in value.items()))
        if isinstance(value, list):
            return ("array", tuple(map(self._frozen, value)))
        return (isinstance(value, bool), value)

    def _bounds(self, r: Keywords, w: Keywords, types: set[str], path: str) -> bool:
        fits = True
        numeric = bool(types & {"number", "integer"})
        for table, sign, kind in ((_LOWER, 1, "INCREASED"), (_UPPER, -1, "DECREASED")):
            for type_, word in table:
                if not (numeric if type_ == "number" else type_ in types):
                    continue
                ours, theirs = _bound(r, word), _bound(w, word)
                if ours is None or (word.startswith("min") and type_ != "number" and ours == (0, 0)):
                    continue
                if (
                    theirs is None
                    or sign * (ours[0] - theirs[0]) > 0
                    or (ours[0] == theirs[0] and ours[1] > theirs[1])
                ):
                    text = f"The reader's {word} is {ours[0]}, and the writer's is {theirs[0] if theirs else 'not set'}"
                    fits = self._find(f"{_constant(word)}_{kind}", f"{path}/{word}", text)
        if "string" in types and r.get("pattern", w.get("pattern")) != w.get("pattern"):
            fits = self._find(
                "PATTERN_CHANGED", f"{path}/pattern", "The reader's pattern is not the writer's"
            )
        step, theirs_step = _number(r, "multipleOf"), _number(w, "multipleOf")
        if numeric and step and not (theirs_step and _divides(step, theirs_step)):
            fits = self._find(
                "MULTIPLE_OF_CHANGED", f"{path}/multipleOf", f"The reader accepts multiples of {step} only"
            )
        return fits

    # -- arrays

    def _arrays(self, reader: Place, writer: Place, path: str) -> bool:
        r, w = _keywords(reader[0]), _keywords(writer[0])
        fits = True
        if r.get("uniqueItems") and not w.get("uniqueItems"):
            fits = self._find(
                "UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "The reader wants items without repetition"
            )
        if "contains" in r and not (
            "contains" in w and self._quietly((r["contains"], reader[1]), (w["contains"], writer[1]), path)
        ):
            fits = self._find(
                "CONTAINS_CHANGED", f"{path}/contains", "The reader wants an item that the writer does not"
            )
        (ours, our_rest), (theirs, their_rest) = _items(r), _items(w)
        for at in range(max(len(ours), len(theirs))):
            mine = ours[at] if at < len(ours) else our_rest
            other = theirs[at] if at < len(theirs) else their_rest
            fits = self.pair((mine, reader[1]), (other, writer[1]), f"{path}/items/{at}") and fits
        return self.pair((our_rest, reader[1]), (their_rest, writer[1]), f"{path}/items") and fits

    # -- objects

    def _objects(self, reader: Place, writer: Place, path: str) -> bool:
        r, w = _keywords(reader[0]), _keywords(writer[0])
        fits = self._required(r, w, path)
        ours, theirs = _object_of(r, "properties"), _object_of(w, "properties")
        for name, other in theirs.items():
            where = step(f"{path}/properties", name)
            if name in ours:
                fits = self.pair((ours[name], reader[1]), (other, writer[1]), where) and fits
                continue
            for mine in self._others(r, name):
                if not self._quietly((mine, reader[1]), (other, writer[1]), where):
                    kind = (
                        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                        if mine is False
                        else ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
                    )
                    fits = self._find(kind, where, f"The reader does not accept the property '{name}'")
        for name, mine in ours.items():
            if name not in theirs:
                fits = self._added(name, (mine, reader[1]), writer, path) and fits
        return self._rest(reader, writer, path) and fits

    def _added(self, name: str, mine: Place, writer: Place, path: str) -> bool:
        for other in self._others(_keywords(writer[0]), name):
            if not self._quietly(mine, (other, writer[1]), path):
                open_ = other is True or other == {}
                kind = (
                    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
                    if open_
                    else ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
                )
                text = f"The writer allows any property '{name}', and the reader has a schema for it"
                return self._find(kind, step(f"{path}/properties", name), text)
        return True

    def _others(self, one: Keywords, name: str) -> list[Json]:
        """What a schema says about a property that it does not list."""
        patterns = _object_of(one, "patternProperties")
        found = []
        for pattern, schema in patterns.items():
            self._budget.entries(1 + len(name) * len(pattern) // 1000)
            search = self._plain_pattern(pattern)
            if search is not None and search(name):
                found.append(schema)
        return found or [one.get("additionalProperties", True)]

    def _plain_pattern(self, pattern: str) -> Search | None:
        """The search of a pattern without repetition and choice; None for other ones, which are compared as text."""
        if pattern not in self._searches:
            plain = re.fullmatch(r"[\w^$\-.]*", pattern) is not None
            self._searches[pattern] = re.compile(pattern).search if plain else None
        return self._searches[pattern]

    def _required(self, r: Keywords, w: Keywords, path: str) -> bool:
        wanted, given = _names(r.get("required")), set(_names(w.get("required")))
        self._budget.entries(len(wanted) + len(given))
        properties = _object_of(r, "properties")
        fits = True
        for name in wanted:
            one = properties.get(name)
            if name not in given and not (isinstance(one, dict) and "default" in one):
                text = f"The reader requires the property '{name}', which the writer does not"
                fits = self._find("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required", text)
        for word in ("dependentRequired", "dependencies"):
            for name, needs in _object_of(r, word).items():
                if not isinstance(needs, list):
                    continue
                held = _names(_object_of(w, word).get(name))
                self._budget.entries(len(needs) + len(held))
                if not set(_names(needs)) - given <= set(held):
                    text = f"The reader requires more properties beside '{name}'"
                    fits = self._find("DEPENDENCY_ARRAY_EXTENDED", f"{path}/{word}/{name}", text)
        return fits

    def _rest(self, reader: Place, writer: Place, path: str) -> bool:
        r, w = _keywords(reader[0]), _keywords(writer[0])
        mine, other = r.get("additionalProperties", True), w.get("additionalProperties", True)
        fits = True
        if not self._quietly((mine, reader[1]), (other, writer[1]), path):
            kind = "ADDITIONAL_PROPERTIES_REMOVED" if mine is False else "ADDITIONAL_PROPERTIES_NARROWED"
            text = "The writer allows additional properties that the reader does not accept"
            fits = self._find(kind, f"{path}/additionalProperties", text)
        for pattern, schema in _object_of(w, "patternProperties").items():
            held = _object_of(r, "patternProperties").get(pattern, mine)
            fits = (
                self.pair((held, reader[1]), (schema, writer[1]), step(f"{path}/patternProperties", pattern))
                and fits
            )
        for pattern, schema in _object_of(r, "patternProperties").items():
            held = _object_of(w, "patternProperties").get(pattern, other)
            fits = (
                self.pair((schema, reader[1]), (held, writer[1]), step(f"{path}/patternProperties", pattern))
                and fits
            )
        if "propertyNames" in r:
            held = w.get("propertyNames", True)
            names: Json = {"type": "string", **held} if isinstance(held, dict) else held
            where = f"{path}/propertyNames"
            fits = self.pair((r["propertyNames"], reader[1]), (names, writer[1]), where) and fits
        return fits


def _resolved(place: Place) -> Place:
    one, document = place
    for _ in range(_MAX_REFS):
        if not isinstance(one, dict) or not isinstance(one.get("$ref"), str):
            return one, document
        beside = {
            key: value for key, value in one.items() if key not in ("$ref", "description", "title", "default")
        }
        target, held = document.resolve(str(one["$ref"]))
        if beside and not {"definitions", "$defs", "$schema", "$id", "$comment"} >= set(beside):
            # Keywords beside a $ref apply too, in the newer drafts.
            return ({"allOf": [target], **beside} if held is document else target), held
        one, document = target, held
    raise InvalidSchema(f"a chain of $ref is longer than {_MAX_REFS}")


def _merge(first: Keywords, second: Json, document: JsonSchema) -> Json:
    """One schema for two that both apply: the stricter of each keyword, as far as one keyword can say it."""
    second = _resolved((second, document))[0]
    if second is False:
        return False
    out: JsonObject = dict(first)
    for word, value in _keywords(second).items():
        held = out.get(word)
        out[word] = value if held is None or held == value else _stricter(word, held, value)
    return out


def _stricter(word: str, held: Json, value: Json) -> Json:
    """The value of a keyword that says what two values of it say together."""
    if isinstance(held, Mapping) and isinstance(value, Mapping):
        if word not in ("properties", "patternProperties", "$defs", "definitions"):
            return held
        joined: JsonObject = dict(held)
        for name, each in value.items():
            joined[name] = {"allOf": [joined[name], each]} if joined.get(name, each) != each else each
        return joined
    if word == "type":
        return sorted(_types({"type": held}) & _types({"type": value}))
    if isinstance(held, list) and isinstance(value, list):
        if word == "required":
            return [*held, *(one for one in value if one not in held)]
        return [*held, *value] if word == "allOf" else held
    if isinstance(held, int | float) and isinstance(value, int | float):
        if word.startswith("min"):
            return max(held, value)
        if word.startswith("max"):
            return min(held, value)
    return held


def _keywords(one: Json) -> Keywords:
    """The keywords of a subschema; none where it is a boolean."""
    return one if isinstance(one, dict) else {}


def _object_of(one: Keywords, word: str) -> Keywords:
    """The value of a keyword that is an object, or an empty one."""
    return _keywords(one.get(word))


def _list_of(one: Keywords, word: str) -> Sequence[Json]:
    """The value of a keyword that is a list, or an empty one."""
    found = one.get(word)
    return found if isinstance(found, list) else []


def _number(one: Keywords, word: str) -> float | None:
    """The value of a keyword that is a number."""
    found = one.get(word)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _types(one: Keywords) -> set[str]:
    given = one.get("type")
    if given is None:
        return set(TYPES) - {"integer"}
    return {given} if isinstance(given, str) else set(_names(given))


def _values(one: Keywords) -> list[Json] | None:
    if "const" in one:
        return [one["const"]]
    found = one.get("enum")
    return list(found) if isinstance(found, list) else None


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = ((int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _bound(one: Keywords, word: str) -> tuple[float, int] | None:
    """A bound, and whether it is exclusive; drafts 4 and 6 write that in two ways."""
    found = _number(one, word)
    if word in ("minimum", "maximum"):
        exclusive = one.get("exclusive" + word.capitalize())
        if exclusive is True and found is not None:
            return found, 1
        if isinstance(exclusive, int | float) and not isinstance(exclusive, bool):
            sign = 1 if word == "minimum" else -1
            if found is None or sign * (exclusive - found) >= 0:
                return exclusive, 1
    return None if found is None else (found, 0)


def _divides(step: float, other: float) -> bool:
    ratio = other / step
    return abs(ratio - round(ratio)) < 1e-9


def _items(one: Keywords) -> tuple[list[Json], Json]:
    """The schemas of the first items, and the schema of all others."""
    if "prefixItems" in one:
        return list(_list_of(one, "prefixItems")), one.get("items", True)
    items = one.get("items", True)
    return (list(items), one.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def _names(given: Json) -> list[str]:
    return [one for one in given if isinstance(one, str)] if isinstance(given, list) else []


def _constant(word: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper()
