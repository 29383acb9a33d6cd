"""Avro schemas of dataclasses: Python's types to Avro's, defaults included, and the way back for decoders."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ottla.json_types import Json, JsonList, JsonObject
from ottla.schemas.errors import SchemaError
from ottla.schemas.values import Make, Value

_PLAIN: Final[Mapping[object, Json]] = {
    str: "string",
    bytes: "bytes",
    int: "long",
    float: "double",
    bool: "boolean",
    type(None): "null",
    dt.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    dt.date: {"type": "int", "logicalType": "date"},
    dt.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
DECIMAL: Final[Mapping[str, Json]] = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
"""The type of a Decimal without another one: `Annotated[Decimal, {"precision": 10, "scale": 2}]` gives one."""

Classes: TypeAlias = dict[str, Make]


def schema_of(kind: type, namespace: str = "") -> tuple[Json, Classes]:
    """The Avro schema of a dataclass, and the classes of its records and enums by their full names."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise SchemaError(
            f"{kind!r} is not a dataclass: give a dataclass, a dict, or a path of an .avsc file"
        )
    maker = _Maker(namespace)
    return maker.record(kind), maker.classes


class _Maker:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.classes: Classes = {}

    def _named(self, kind: type) -> str:
        return f"{self._namespace}.{kind.__name__}" if self._namespace else kind.__name__

    def record(self, kind: type) -> Json:
        name = self._named(kind)
        if name in self.classes:
            return name
        self.classes[name] = kind
        hints = typing.get_type_hints(kind, include_extras=True)
        fields: JsonList = [self._field(kind, field, hints[field.name]) for field in dataclasses.fields(kind)]
        out: JsonObject = {"type": "record", "name": kind.__name__}
        if self._namespace:
            out["namespace"] = self._namespace
        doc = (kind.__doc__ or "").strip()
        if doc and not doc.startswith(f"{kind.__name__}("):
            out["doc"] = doc
        out["fields"] = fields
        return out

    def _field(self, owner: type, field: dataclasses.Field[Value], hint: object) -> JsonObject:
        where = f"{owner.__name__}.{field.name}"
        kind = self._type(hint, where)
        out: JsonObject = {"name": field.name, "type": kind}
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING:
            return out
        if isinstance(kind, list):
            out["type"] = _default_first(kind, default)
        try:
            out["default"] = _json_default(default)
        except _NoDefault:
            return out
        return out

    def _type(self, hint: object, where: str) -> Json:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            extra = next((one for one in arguments[1:] if isinstance(one, dict)), None)
            if arguments[0] is decimal.Decimal and extra:
                return {"type": "bytes", "logicalType": "decimal", **extra}
            return extra if extra and "type" in extra else self._type(arguments[0], where)
        if origin in (typing.Union, types.UnionType):
            branches = [self._type(one, where) for one in arguments]
            return sorted(branches, key=lambda one: one != "null")
        if origin in (list, Sequence, tuple) and arguments:
            return {"type": "array", "items": self._type(arguments[0], where)}
        if origin in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self._type(arguments[1], where)}
        if hint in _PLAIN:
            known = _PLAIN[hint]
            return dict(known) if isinstance(known, dict) else known
        if hint is decimal.Decimal:
            return dict(DECIMAL)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._enum(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.record(hint)
        raise SchemaError(f"{where} has the type {hint}, which has no Avro type; annotate it with one")

    def _enum(self, kind: type[enum.Enum]) -> Json:
        name = self._named(kind)
        if name in self.classes:
            return name
        self.classes[name] = kind
        out: JsonObject = {"type": "enum", "name": kind.__name__, "symbols": list(kind.__members__)}
        if self._namespace:
            out["namespace"] = self._namespace
        return out


def _default_first(branches: JsonList, default: object) -> JsonList:
    """A union whose first branch is that of the default, as older readers of Avro want it."""
    if default is None or "null" not in branches:
        return branches
    return [one for one in branches if one != "null"] + ["null"]


class _NoDefault(Exception):
    """A default of a dataclass that JSON has no form for: the field has none in the schema."""


def _json_default(value: object) -> Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value.name if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple):
        return [_json_default(one) for one in value]
    if isinstance(value, dict):
        return {key: _json_default(one) for key, one in value.items()}
    raise _NoDefault
