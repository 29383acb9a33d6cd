"""Parses Avro schemas with bounds on size and depth, and with named types of references.

Errors name the path to the place. The rules are those of Apache Avro 1.12: names, unions, enum symbols, defaults.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from ottla.json_types import Json, JsonList, JsonObject
from ottla.registry.avro_types import NAMED, PRIMITIVES, AvroType, Field, to_text
from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import (
    MAX_DEFAULT_CHECKS,
    MAX_DEPTH,
    MAX_NAME_CHARS,
    MAX_NODES,
    MAX_SCHEMA_BYTES,
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS: Final = ("ascending", "descending", "ignore")
_TYPE_WORDS: Final = frozenset(
    {"type", "name", "namespace", "doc", "fields", "symbols", "size", "items", "values", "aliases"}
)
_FIELD_WORDS: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema: its root type, its canonical text, and the names that it defines."""

    root: AvroType
    text: str
    names: Mapping[str, AvroType]


def parse(text: str, references: Iterable[AvroSchema] = (), *, lenient: bool = False) -> AvroSchema:
    """Parse a schema. `lenient` accepts defaults and names that are not valid, as older registries did."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema has {len(text)} characters; the limit is {MAX_SCHEMA_BYTES}")
    document = read_json(text)
    names: dict[str, AvroType] = {}
    for reference in references:
        names.update(reference.names)
    borrowed = frozenset(names)
    parser = _Parser(names, lenient=lenient)
    root = parser.type(document, "", "", 0)
    parser.check_defaults()
    return AvroSchema(root, to_text(root, known=borrowed), parser.names)


def read_json(text: str) -> Json:
    """A JSON document of bounded depth. A bare word counts as the name of a type, as Java's parser takes it."""
    check_depth(text)
    try:
        return cast("Json", json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        if _NAME.match(text.strip().replace(".", "_")):
            return text.strip()
        raise InvalidSchema(f"it is not JSON: {error}") from None


def check_depth(text: str, limit: int = MAX_DEPTH * 3) -> None:
    """Refuse brackets that nest deeper than any parser here should recurse."""
    depth = deepest = 0
    in_string = False
    skip = False
    for char in text:
        if skip:
            skip = False
        elif in_string:
            if char == "\\":
                skip = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > limit:
                raise InvalidSchema(f"it nests deeper than {limit} brackets")
        elif char in "]}":
            depth -= 1


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON value")


class _Parser:
    def __init__(self, names: dict[str, AvroType], *, lenient: bool) -> None:
        self.names = names
        self._lenient = lenient
        self._nodes = 0
        self._defaults: list[tuple[Field, str]] = []
        self._primitives: dict[str, AvroType] = {}

    def type(self, given: Json, space: str, path: str, depth: int) -> AvroType:
        """The type that a JSON value stands for, in a namespace."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InvalidSchema(f"it has more than {MAX_NODES} types and fields")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"{path or '/'}: it nests deeper than {MAX_DEPTH} types")
        if isinstance(given, str):
            return self._by_name(given, space, path)
        if isinstance(given, list):
            return self._union(given, space, path, depth)
        if not isinstance(given, dict):
            raise InvalidSchema(f"{path or '/'}: a type is a name, an object or a union, not {_short(given)}")
        return self._object(given, space, path, depth)

    def _by_name(self, name: str, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            known = self._primitives.get(name)
            if known is None:
                known = self._primitives[name] = AvroType(name)
            return known
        full = name if "." in name or not space else f"{space}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"{path or '/'}: the name {_short(full)} is not defined")
        return found

    def _union(self, given: JsonList, space: str, path: str, depth: int) -> AvroType:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for number, one in enumerate(given):
            branch = self.type(one, space, f"{path}/{number}", depth + 1)
            if branch.kind == "union":
                raise InvalidSchema(f"{path}/{number}: a union may not be a branch of a union")
            label = branch.name if branch.kind in NAMED else branch.kind
            if label in seen:
                raise InvalidSchema(f"{path}/{number}: the union has {label} twice")
            seen.add(label)
            branches.append(branch)
        return AvroType("union", branches=tuple(branches))

    def _object(self, given: JsonObject, space: str, path: str, depth: int) -> AvroType:
        kind = given.get("type")
        if kind is None:
            raise InvalidSchema(f"{path or '/'}: the type is missing")
        if not isinstance(kind, str):
            inner = self.type(kind, space, f"{path}/type", depth + 1)
            extra = {key: value for key, value in given.items() if key not in _TYPE_WORDS}
            if inner.kind not in NAMED and inner.kind != "union":
                inner.props.update(extra)
            return inner
        if kind in PRIMITIVES:
            props = {key: value for key, value in given.items() if key not in _TYPE_WORDS}
            return AvroType(kind, props=props) if props else self._by_name(kind, space, path)
        if kind == "array" or kind == "map":
            word = "items" if kind == "array" else "values"
            if word not in given:
                raise InvalidSchema(f"{path or '/'}: an {kind} needs '{word}'" if kind == "array" else
                                    f"{path or '/'}: a map needs 'values'")  # fmt: skip
            inside = self.type(given[word], space, f"{path}/{word}", depth + 1)
            props = {key: value for key, value in given.items() if key not in _TYPE_WORDS}
            return AvroType(kind, items=inside, props=props)
        if kind in NAMED:
            return self._named(kind, given, space, path, depth)
        return self._by_name(kind, space, path)

    def _named(self, kind: str, given: JsonObject, space: str, path: str, depth: int) -> AvroType:
        name = self._full_name(given, space, path)
        if name in self.names:
            raise InvalidSchema(f"{path or '/'}: {name} is defined twice")
        doc = given.get("doc")
        one = AvroType(kind, name, doc=doc if isinstance(doc, str) else None)
        words = {"type", "name", "namespace", "doc", "aliases"}
        one.aliases = tuple(
            alias if "." in alias or not one.namespace else f"{one.namespace}.{alias}"
            for alias in _strings(given.get("aliases", []), f"{path}/aliases")
        )
        self.names[name] = one
        if kind == "enum":
            words |= {"symbols", "default"}
            self._enum(one, given, path)
        elif kind == "fixed":
            words |= {"size"}
            size = given.get("size")
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise InvalidSchema(
                    f"{path}/size: the size of {name} is a number of bytes, not {_short(size)}"
                )
            one.size = size
        else:
            words |= {"fields"}
            self._fields(one, given, path, depth)
        one.props = {key: value for key, value in given.items() if key not in words}
        return one

    def _valid(self, name: str) -> bool:
        # Registries before Avro 1.12 took other names in: what is stored stays readable.
        return bool(name) if self._lenient else _NAME.match(name) is not None

    def _full_name(self, given: JsonObject, space: str, path: str) -> str:
        name, own = given.get("name"), given.get("namespace")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"{path or '/'}: the name is missing")
        if own is not None and not isinstance(own, str):
            raise InvalidSchema(f"{path}/namespace: a namespace is a text, not {_short(own)}")
        if "." not in name:
            chosen = space if own is None else own
            name = f"{chosen}.{name}" if chosen else name
        if len(name) > MAX_NAME_CHARS:
            raise InvalidSchema(f"{path}/name: a full name has more than {MAX_NAME_CHARS} characters")
        for part in name.lstrip(".").split("."):
            if not self._valid(part):
                raise InvalidSchema(f"{path}/name: {_short(name)} is not a valid name")
        if name.lstrip(".") in PRIMITIVES:
            raise InvalidSchema(f"{path}/name: {name} is the name of a primitive type")
        return name.lstrip(".")

    def _enum(self, one: AvroType, given: JsonObject, path: str) -> None:
        symbols = _strings(given.get("symbols"), f"{path}/symbols")
        for number, symbol in enumerate(symbols):
            if not self._valid(symbol):
                raise InvalidSchema(f"{path}/symbols/{number}: {_short(symbol)} is not a valid symbol")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"{path}/symbols: {one.name} has a symbol twice")
        one.symbols = tuple(symbols)
        default = given.get("default")
        if default is None:
            return
        if not isinstance(default, str) or default not in symbols:
            raise InvalidSchema(f"{path}/default: {_short(default)} is not a symbol of {one.name}")
        one.default = default

    def _fields(self, one: AvroType, given: JsonObject, path: str, depth: int) -> None:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{path or '/'}: the record {one.name} needs a list of fields")
        seen: set[str] = set()
        for number, raw in enumerate(fields):
            where = f"{path}/fields/{number}"
            if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
                raise InvalidSchema(f"{where}: a field of {one.name} is an object with a name")
            name = raw["name"]
            if not self._valid(name):
                raise InvalidSchema(f"{where}/name: {_short(name)} is not a valid name")
            if name in seen:
                raise InvalidSchema(f"{where}/name: {one.name} has the field {name} twice")
            seen.add(name)
            if "type" not in raw:
                raise InvalidSchema(f"{where}: the field {name} of {one.name} has no type")
            order = str(raw.get("order", "ascending")).lower()
            if order not in _ORDERS:
                raise InvalidSchema(f"{where}/order: {_short(order)} is not an order")
            doc = raw.get("doc")
            field = Field(
                name,
                self.type(raw["type"], one.namespace, f"{where}/type", depth + 1),
                doc if isinstance(doc, str) else None,
                raw.get("default"),
                "default" in raw,
                order,
                tuple(_strings(raw.get("aliases", []), f"{where}/aliases")),
                {key: value for key, value in raw.items() if key not in _FIELD_WORDS},
            )
            one.fields.append(field)
            if field.has_default:
                self._defaults.append((field, where))

    def check_defaults(self) -> None:
        """Check defaults when all names are defined."""
        if self._lenient:
            return
        defaults = Defaults()
        for field, where in self._defaults:
            if not defaults.fits(field.type, field.default):
                shown = _short(field.default)
                raise InvalidSchema(f"{where}/default: {shown} is not a value of the type of {field.name}")


class Defaults:
    """Checks defaults. A value is checked once for each type that it meets, and there is a limit on that."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}
        self._checks = 0

    def fits(self, one: AvroType, value: Json) -> bool:
        """Whether a JSON value is a default of a type. A union's default may be of any branch, as in Avro 1.12."""
        self._checks += 1
        if self._checks > MAX_DEFAULT_CHECKS:
            raise InvalidSchema(f"its defaults take more than {MAX_DEFAULT_CHECKS} checks")
        if not isinstance(value, dict | list):
            return self._is_of(one, value)
        key = (id(one), id(value))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._is_of(one, value)
        return known

    def _is_of(self, one: AvroType, value: Json) -> bool:
        match one.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                if isinstance(value, bool) or not isinstance(value, int | float):
                    return False
                bits = 31 if one.kind == "int" else 63
                return (isinstance(value, int) or value.is_integer()) and -(1 << bits) <= value < 1 << bits
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            case "string" | "bytes" | "fixed" | "enum":
                return isinstance(value, str)
            case "array":
                assert one.items is not None
                return isinstance(value, list) and all(self.fits(one.items, item) for item in value)
            case "map":
                assert one.items is not None
                return isinstance(value, dict) and all(self.fits(one.items, item) for item in value.values())
            case "union":
                return any(self.fits(branch, value) for branch in one.branches)
        if not isinstance(value, dict):
            return False
        self._checks += len(one.fields)
        return all(
            self.fits(each.type, value[each.name]) if each.name in value else each.has_default
            for each in one.fields
        )


def _strings(given: Json, path: str) -> list[str]:
    names = [one for one in given if isinstance(one, str)] if isinstance(given, list) else None
    if not isinstance(given, list) or names is None or len(names) < len(given):
        raise InvalidSchema(f"{path}: it is a list of names, not {_short(given)}")
    return names


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
