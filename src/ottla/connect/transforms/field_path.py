"""Paths to nested fields (KIP-821): version 1 names one field, version 2 has dots, and backticks around names."""

from __future__ import annotations

from ottla.connect.data.schema import ConnectValue, Field, Schema, Struct, Type
from ottla.connect.failures import ConfigInvalid
from ottla.connect.transforms.parts import require_map, require_struct


class FieldPath:
    """The steps to one field."""

    def __init__(self, text: str, version: str) -> None:
        self.steps = [text] if version.upper() == "V1" else _steps(text)

    def field_of(self, schema: Schema | None) -> Field | None:
        """The field in a schema."""
        current = schema
        for step in self.steps[:-1]:
            if current is None or current.type is not Type.STRUCT or not current.has(step):
                return None
            current = current.field(step).schema
        if current is None or current.type is not Type.STRUCT or not current.has(self.steps[-1]):
            return None
        return current.field(self.steps[-1])

    def in_struct(self, value: Struct, *, with_default: bool) -> ConnectValue:
        """The value in a struct; None if a step is missing."""
        current = value
        for step in self.steps[:-1]:
            if not current.schema.has(step):
                return None
            inner = current.get(step)
            if inner is None:
                return None
            current = require_struct(inner, "nested field access")
        last = self.steps[-1]
        if not current.schema.has(last):
            return None
        return current.get(last) if with_default else current.without_default(last)

    def in_map(self, value: dict[str, ConnectValue]) -> ConnectValue:
        """The value in a map; None if a step is missing."""
        current = value
        for step in self.steps[:-1]:
            inner = current.get(step)
            if inner is None:
                return None
            current = require_map(inner, "nested field access")
        return current.get(self.steps[-1])


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] != "`":
            dot = path.find(".", at)
            steps.append(path[at:] if dot < 0 else path[at:dot])
            at = len(path) if dot < 0 else dot + 1
        else:
            step, at = _quoted(path, at)
            steps.append(step)
    if path.endswith("."):
        steps.append("")
    return steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """The name between backticks, and where the next step begins. Only a backtick before a dot or the end closes."""
    name, start, at = "", opening + 1, opening + 1
    while True:
        at = path.find("`", at)
        if at < 0 or (at == len(path) - 1 and path[at - 1] == "\\"):
            raise ConfigInvalid(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at "
                f"position {opening} to escape it"
            )
        if at == len(path) - 1:
            return name + path[start:at], at + 1
        if path[at + 1] != ".":
            at += 1
        elif path[at - 1] == "\\":
            name += path[start : at - 1] + "`"
            at += 1
            start = at
        else:
            return name + path[start:at], at + 2
