"""Random Avro schemas, and small changes to them, so that about half of the pairs are compatible."""

from __future__ import annotations

import copy
import random
from typing import Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 8,
    "float": 1.5,
    "double": 2.5,
    "bytes": "x",
    "string": "s",
}


class SchemaMaker:
    """Draws schemas from a seed. Names come from a small set, so that names of two schemas often meet."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.names: list[str] = []

    def schema(self) -> Any:
        self.names = []
        return self._type(3)

    def _type(self, depth: int) -> Any:
        roll = self.random.random()
        if depth <= 0 or roll < 0.3:
            return self.random.choice(_PRIMITIVES)
        if roll < 0.42:
            return {"type": "array", "items": self._type(depth - 1)}
        if roll < 0.5:
            return {"type": "map", "values": self._type(depth - 1)}
        if roll < 0.6:
            return self._named("enum")
        if roll < 0.66:
            return self._named("fixed")
        if roll < 0.8:
            return self._union(depth)
        if roll < 0.84 and self.names:
            return self.random.choice(self.names)
        return self._record(depth)

    def _name(self) -> tuple[dict[str, Any], str] | None:
        plain, space = self.random.choice("ABCDE"), self.random.choice(["", "", "one", "two.three"])
        full = f"{space}.{plain}" if space else plain
        if full in self.names:
            return None
        self.names.append(full)
        named: dict[str, Any] = {"name": plain, "namespace": space}
        if self.random.random() < 0.15:
            named["aliases"] = [self.random.choice(["A", "one.B", "C", "two.three.D"])]
        return named, full

    def _named(self, kind: str) -> Any:
        found = self._name()
        if found is None:
            return "string"
        if kind == "fixed":
            return {"type": "fixed", **found[0], "size": self.random.choice([1, 2, 16])}
        symbols = self.random.sample(["RED", "GREEN", "BLUE", "GREY"], self.random.randint(1, 4))
        enum = {"type": "enum", **found[0], "symbols": symbols}
        if self.random.random() < 0.3:
            enum["default"] = symbols[0]
        return enum

    def _record(self, depth: int) -> Any:
        found = self._name()
        if found is None:
            return "long"
        fields = []
        for name in self.random.sample(["a", "b", "c", "d", "e"], self.random.randint(0, 4)):
            field: dict[str, Any] = {"name": name, "type": self._type(depth - 1)}
            plain = isinstance(field["type"], str) and field["type"] in _DEFAULTS
            if self.random.random() < 0.4 and plain:
                field["default"] = _DEFAULTS[field["type"]]
            if self.random.random() < 0.1:
                field["aliases"] = [self.random.choice(["a", "b", "x", "y"])]
                if field["aliases"] == [name]:
                    del field["aliases"]
            fields.append(field)
        return {"type": "record", **found[0], "fields": fields}

    def _union(self, depth: int) -> Any:
        kinds = self.random.sample(_PRIMITIVES, self.random.randint(1, 3))
        branches: list[Any] = list(kinds)
        if self.random.random() < 0.5:
            extra = self._type(depth - 1)
            if isinstance(extra, dict):
                branches.append(extra)
        self.random.shuffle(branches)
        return branches

    def changed(self, schema: Any) -> Any:
        """A copy with a few changes that people make."""
        out = copy.deepcopy(schema)
        places = list(_places(out))
        for _ in range(self.random.randint(1, 2)):
            if not places:
                return self.random.choice(_PRIMITIVES)
            self._change(self.random.choice(places))
        return out

    def _change(self, one: dict[str, Any]) -> None:
        match one.get("type"):
            case "enum":
                if self.random.random() < 0.5 and len(one["symbols"]) > 1:
                    one["symbols"].pop()
                    one.pop("default", None)
                else:
                    one["symbols"].append("NEW")
            case "fixed":
                one["size"] = self.random.choice([1, 2])
            case "record":
                self._change_record(one)
            case "array" if isinstance(one["items"], str):
                one["items"] = self.random.choice(_PRIMITIVES)
            case "map" if isinstance(one["values"], str):
                one["values"] = self.random.choice(_PRIMITIVES)

    def _change_record(self, one: dict[str, Any]) -> None:
        roll = self.random.random()
        if roll < 0.3:
            field: dict[str, Any] = {"name": f"n{self.random.randint(0, 99)}", "type": "int"}
            if self.random.random() < 0.6:
                field["default"] = 1
            if all(each["name"] != field["name"] for each in one["fields"]):
                one["fields"].append(field)
        elif roll < 0.6:
            plain = [each for each in one["fields"] if isinstance(each["type"], str)]
            if plain:
                one["fields"].remove(self.random.choice(plain))
        elif roll < 0.8:
            plain = [each for each in one["fields"] if each["type"] in _PRIMITIVES]
            if plain:
                field = self.random.choice(plain)
                field["type"] = self.random.choice(_PRIMITIVES)
                field.pop("default", None)
        elif one["fields"]:
            field = self.random.choice(one["fields"])
            field["aliases"] = [field["name"]]
            field["name"] = field["name"] + "x"


def _places(one: Any) -> Any:
    if isinstance(one, list):
        for each in one:
            yield from _places(each)
    elif isinstance(one, dict):
        yield one
        for each in one.get("fields", ()):
            yield from _places(each["type"])
        yield from _places(one.get("items"))
        yield from _places(one.get("values"))
