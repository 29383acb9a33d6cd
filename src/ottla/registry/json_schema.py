"""Parses JSON Schemas (drafts 4 to 2020-12): keywords have the right kinds, and every `$ref` leads somewhere known.

Nothing is fetched: a reference outside the document must be one of the schema's registered references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urljoin

from ottla.json_types import Json, JsonList, JsonObject
from ottla.registry.avro import check_depth
from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import MAX_DEPTH, MAX_NAME_CHARS, MAX_NODES, MAX_SCHEMA_BYTES, MAX_SHOWN_CHARS

TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
_SCHEMAS: Final = frozenset(
    [
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "additionalProperties",
        "additionalItems",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contentSchema",
    ]
)
_SCHEMA_MAPS: Final = frozenset(
    ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas"]
)
_SCHEMA_LISTS: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_NUMBERS: Final = frozenset(["multipleOf", "maximum", "minimum"])
_COUNTS: Final = frozenset(
    [
        "maxLength",
        "minLength",
        "maxItems",
        "minItems",
        "maxProperties",
        "minProperties",
        "maxContains",
        "minContains",
    ]
)
_TEXTS: Final = frozenset(
    ["$id", "id", "$ref", "$dynamicRef", "$anchor", "$comment", "title", "description", "pattern", "format"]
)
_MAX_PATTERN_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A parsed schema: the document, its base address, and the documents that its references name."""

    document: Json
    text: str
    base: str
    others: Mapping[str, JsonSchema]
    places: Mapping[str, Json]
    """Subschemas by `$id` and `$anchor`, as absolute addresses."""

    def resolve(self, ref: str) -> tuple[Json, JsonSchema]:
        """The subschema that a `$ref` names, and the document that holds it; InvalidSchema if there is none."""
        target = urljoin(self.base, ref) if self.base else ref
        address, _, fragment = target.partition("#")
        if address in ("", self.base.partition("#")[0]):
            return self._inside(fragment, ref), self
        if address in self.places:
            return _pointer(self.places[address], fragment, ref), self
        for name in (address, ref.partition("#")[0]):
            if name in self.others:
                other = self.others[name]
                return other._inside(fragment, ref), other
        raise InvalidSchema(
            f"the $ref {_short(ref)} is not among the schema's references, and nothing is fetched"
        )

    def _inside(self, fragment: str, ref: str) -> Json:
        anchor = f"{self.base.partition('#')[0]}#{fragment}"
        if anchor in self.places:
            return self.places[anchor]
        return _pointer(self.document, fragment, ref)


def parse(text: str, references: Mapping[str, JsonSchema]) -> JsonSchema:
    """Parse a schema, with those that its references name."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema has {len(text)} characters; the limit is {MAX_SCHEMA_BYTES}")
    check_depth(text)
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"it is not JSON: {error}") from None
    base = str(document.get("$id") or document.get("id") or "") if isinstance(document, dict) else ""
    others = dict(references)
    for each in references.values():
        if each.base:
            others.setdefault(each.base.rstrip("#"), each)
        for name, inner in each.others.items():
            others.setdefault(name, inner)
    _check_address(base, "/$id")
    checker = _Checker(base)
    checker.check(document, "", base, 0)
    plain = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    schema = JsonSchema(document, plain, base, others, checker.places)
    for ref, path in checker.refs:
        try:
            schema.resolve(ref)
        except InvalidSchema as error:
            raise InvalidSchema(f"{path}: {error}") from None
    return schema


class _Checker:
    def __init__(self, base: str) -> None:
        self.places: dict[str, Json] = {}
        self.refs: list[tuple[str, str]] = []
        self._nodes = 0

    def check(self, one: Json, path: str, base: str, depth: int) -> None:
        """Check a subschema and all below it."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InvalidSchema(f"it has more than {MAX_NODES} subschemas")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"{path}: it nests deeper than {MAX_DEPTH} schemas")
        where = path or "/"
        if isinstance(one, bool):
            return
        if not isinstance(one, dict):
            raise InvalidSchema(f"{where}: a schema is an object or a boolean, not {_short(one)}")
        own = one.get("$id")
        if isinstance(own, str) and path:
            base = urljoin(base, own) if base else own
            _check_address(base, where)
            self.places[base.rstrip("#")] = one
        if isinstance(one.get("$anchor"), str):
            self.places[f"{base.partition('#')[0]}#{one['$anchor']}"] = one
        for word, value in one.items():
            self._keyword(word, value, step(path, word), base, depth)

    def _keyword(self, word: str, value: Json, path: str, base: str, depth: int) -> None:
        if word in _SCHEMAS:
            self.check(value, path, base, depth + 1)
        elif word == "items":
            for at, each in enumerate(value if isinstance(value, list) else [value]):
                self.check(each, step(path, at) if isinstance(value, list) else path, base, depth + 1)
        elif word in _SCHEMA_MAPS:
            for name, each in _object(value, path, "an object of schemas").items():
                if word == "patternProperties":
                    _check_pattern(name, path)
                self.check(each, step(path, name), base, depth + 1)
        elif word in _SCHEMA_LISTS:
            for at, each in enumerate(_list(value, path, "a list of schemas")):
                self.check(each, step(path, at), base, depth + 1)
        elif word == "dependencies":
            for name, each in _object(value, path, "an object").items():
                if not isinstance(each, list):
                    self.check(each, step(path, name), base, depth + 1)
        else:
            _check_plain(word, value, path)
            if word == "$ref" and isinstance(value, str):
                _check_address(value, path)
                self.refs.append((value, path))


def step(path: str, name: str | int) -> str:
    """A path one step further. Names are shortened, since everything below them repeats them."""
    if len(path) > MAX_SHOWN_CHARS:
        return path if path.endswith("/...") else f"{path}/..."
    return f"{path}/{str(name)[:MAX_SHOWN_CHARS]}"


def _check_address(address: str, path: str) -> None:
    if len(address) > MAX_NAME_CHARS:
        raise InvalidSchema(f"{path}: an address has more than {MAX_NAME_CHARS} characters")


def _check_plain(word: str, value: Json, path: str) -> None:
    if word == "type":
        kinds = value if isinstance(value, list) else [value]
        good = 0 < len(kinds) <= len(TYPES) and all(kind in TYPES for kind in kinds)
        _want(good, path, f"a type ({', '.join(TYPES)})", value)
    elif word in _NUMBERS:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        _want(numeric, path, "a number", value)
        positive = isinstance(value, int | float) and value > 0
        _want(word != "multipleOf" or positive, path, "greater than 0", value)
    elif word in _COUNTS:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        _want(whole, path, "a number of 0 or more", value)
    elif word == "required":
        # Draft 3 had a boolean here.
        good = isinstance(value, bool) or (
            isinstance(value, list) and all(isinstance(one, str) for one in value)
        )
        _want(good, path, "a list of names", value)
    elif word == "enum":
        _want(isinstance(value, list), path, "a list of values", value)
    elif word == "uniqueItems":
        _want(isinstance(value, bool), path, "true or false", value)
    elif word in ("exclusiveMinimum", "exclusiveMaximum"):
        _want(isinstance(value, bool | int | float), path, "a number", value)
    elif word in _TEXTS:
        _want(isinstance(value, str), path, "a text", value)
        if word == "pattern" and isinstance(value, str):
            _check_pattern(value, path)


def _check_pattern(pattern: str, path: str) -> None:
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise InvalidSchema(f"{path}: a pattern has more than {_MAX_PATTERN_CHARS} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        # Patterns of ECMAScript that Python does not know are kept; they are compared as text only.
        return


def _object(value: Json, path: str, wanted: str) -> JsonObject:
    if not isinstance(value, dict):
        raise InvalidSchema(f"{path}: it must be {wanted}, not {_short(value)}")
    return value


def _list(value: Json, path: str, wanted: str) -> JsonList:
    if not isinstance(value, list) or not value:
        raise InvalidSchema(f"{path}: it must be {wanted}, not {_short(value)}")
    return value


def _want(good: bool, path: str, wanted: str, value: Json) -> None:
    if not good:
        raise InvalidSchema(f"{path}: it must be {wanted}, not {_short(value)}")


def _pointer(document: Json, fragment: str, ref: str) -> Json:
    found = document
    for word in unquote(fragment).split("/")[1:] if fragment else ():
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and word.isdigit() and int(word[:9]) < len(found):
            found = found[int(word)]
        elif isinstance(found, dict) and word in found:
            found = found[word]
        else:
            raise InvalidSchema(f"the $ref {_short(ref)} leads to nothing")
    if fragment and not fragment.startswith("/"):
        raise InvalidSchema(f"the $ref {_short(ref)} names an anchor that is not there")
    if not isinstance(found, dict | bool):
        raise InvalidSchema(f"the $ref {_short(ref)} leads to what is not a schema")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON value")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
