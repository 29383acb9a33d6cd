"""Definitions of configuration keys, and their validation with Kafka's own messages.

A connector builds a `ConfigDef` of its keys. `configs.jsonl` has the keys of Kafka's own classes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Final, TypeAlias

from ottla.connect.failures import ConfigInvalid
from ottla.json_types import JsonObject

NO_DEFAULT: Final = object()
"""The default of a required key."""

HIDDEN: Final = "[hidden]"

Setting: TypeAlias = Any
"""The parsed value of a key: a str, int, float, bool, list of str or None, as the type of the key says."""

ConfigValues: TypeAlias = Mapping[str, Setting]
"""The parsed values of all keys of a definition, by name."""

Validator = Callable[[str, Setting], str | None]
"""Gives the reason why a value is not valid, or None; the first argument is the key."""

_WHOLE: Final = {"INT": (31, "INT"), "LONG": (63, "LONG"), "SHORT": (15, "SHORT")}

_RANGE: Final = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]")
_IMPORTANCE: Final = ("HIGH", "MEDIUM", "LOW")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `valid` is Kafka's description of valid values: a range, a list, or a few known words."""

    name: str
    type: str = "STRING"
    default: Setting = NO_DEFAULT
    importance: str = "MEDIUM"
    documentation: str = ""
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    valid: str | None = None
    validator: Validator | None = None
    recommended: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is NO_DEFAULT

    def parse(self, value: Setting) -> Setting:
        """The value in its type; ConfigInvalid with Kafka's message."""
        return parse_type(self.name, value, self.type)

    def check(self, value: Setting) -> str | None:
        """Why a parsed value is not valid, in Kafka's words."""
        reason = _violates(self.name, value, self.valid) if self.valid else None
        return reason or (self.validator(self.name, value) if self.validator is not None else None)

    def json(self) -> JsonObject:
        """Kafka's ConfigKeyInfo."""
        default = None if self.required else to_text(self.default, self.type)
        if self.type == "PASSWORD" and default is not None:
            default = HIDDEN
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": default,
            "importance": self.importance,
            "documentation": self.documentation,
            "group": self.group,
            "width": self.width,
            "display_name": self.display_name or self.name,
            "dependents": list(self.dependents),
            "order_in_group": self.order,
        }


@dataclass(slots=True)
class ConfigValue:
    """The value of a key, with what is wrong with it."""

    name: str
    value: Setting = None
    errors: list[str] = field(default_factory=list)
    recommended: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    """An ordered set of keys.

    >>> definition = ConfigDef([ConfigKey("file"), ConfigKey("batch.size", "INT", 2000)])
    >>> definition.parse({"file": "/tmp/lines"})
    {'file': '/tmp/lines', 'batch.size': 2000}
    """

    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        self.keys: dict[str, ConfigKey] = {one.name: one for one in keys}

    def __or__(self, other: ConfigDef) -> ConfigDef:
        return ConfigDef([*self.keys.values(), *other.keys.values()])

    def embed(self, prefix: str, group: str, order: int, other: ConfigDef) -> ConfigDef:
        """With the keys of another definition under a prefix."""
        added = []
        for number, one in enumerate(sorted(other.keys.values(), key=_rank)):
            shown = one.display_name or one.name
            added.append(
                replace(one, name=prefix + one.name, group=group, order=order + number, display_name=shown)
            )
        return ConfigDef([*self.keys.values(), *added])

    def groups(self) -> list[str]:
        """The groups of the keys, in the order of their first key."""
        return list(dict.fromkeys(one.group for one in self.keys.values() if one.group))

    def validate(self, props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """The value of each key with its errors, as Kafka's `ConfigDef.validate` finds them."""
        return {name: _validated(key, props) for name, key in self.keys.items()}

    def parse(self, props: Mapping[str, str | None]) -> dict[str, Setting]:
        """The values of all keys in their types; ConfigInvalid for the first one that is wrong."""
        parsed = {}
        for name, value in self.validate(props).items():
            if value.errors:
                raise ConfigInvalid(value.errors[0])
            parsed[name] = value.value
        return parsed


def _rank(key: ConfigKey) -> tuple[str, int, bool, int, str]:
    """Kafka's order of keys: without a group first, then required ones, then by importance and name."""
    importance = _IMPORTANCE.index(key.importance) if key.importance in _IMPORTANCE else 2
    return (key.group or "", key.order, not key.required, importance, key.name)


def _validated(key: ConfigKey, props: Mapping[str, str | None]) -> ConfigValue:
    found = ConfigValue(key.name, recommended=list(key.recommended))
    if key.name not in props:
        if key.required:
            found.errors.append(f'Missing required configuration "{key.name}" which has no default value.')
            return found
        found.value = parse_type(key.name, key.default, key.type)
        return found
    try:
        found.value = key.parse(props[key.name])
    except ConfigInvalid as error:
        found.errors.append(str(error))
        if key.valid is not None and _RANGE.fullmatch(key.valid):
            found.errors.append(f"Invalid value null for configuration {key.name}: Value must be non-null")
        return found
    reason = key.check(found.value)
    if reason is not None:
        shown = HIDDEN if key.type == "PASSWORD" else _shown(found.value)
        found.errors.append(f"Invalid value {shown} for configuration {key.name}: {reason}")
    return found


def _shown(value: Setting) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value)


def parse_type(name: str, value: Setting, kind: str) -> Setting:
    """A value in the type of its key; ConfigInvalid with Kafka's message."""
    if value is None or not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise ConfigInvalid(_invalid(name, value, "Expected value to be either true or false"))
        return text.lower() == "true"
    if kind in _WHOLE:
        bits, word = _WHOLE[kind]
        if not re.fullmatch(r"[+-]?\d{1,20}", text) or not -(2**bits) <= int(text) < 2**bits:
            raise ConfigInvalid(_invalid(name, value, f"Not a number of type {word}"))
        return int(text)
    if kind == "DOUBLE":
        try:
            return float(text)
        except ValueError:
            raise ConfigInvalid(_invalid(name, value, "Not a number of type DOUBLE")) from None
    if kind == "LIST":
        return re.split(r"\s*,\s*", text) if text else []
    return text


def _invalid(name: str, value: Setting, reason: str) -> str:
    return f"Invalid value {value} for configuration {name}: {reason}"


def to_text(value: Setting, kind: str = "STRING") -> str | None:
    """The text of a value, as Kafka converts it back."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _violates(name: str, value: Setting, valid: str) -> str | None:
    """Why a value is not in the described set; None if it is, or if the description only speaks to people."""
    if value is None:
        if valid.startswith(("non-empty", "non-null")):
            return (
                "entry must be non null"
                if "regex" not in valid and "list" not in valid
                else "must not be null"
            )
        return None
    span = _RANGE.fullmatch(valid)
    if span is not None:
        if float(value) < float(span[1]):
            return f"Value must be at least {span[1]}"
        if span[2] is not None and float(value) > float(span[2]):
            return f"Value must be no more than {span[2]}"
        return None
    choice = re.fullmatch(r"(\(case insensitive\) )?\[([^\]]*)\]", valid)
    if choice is not None:
        names = choice[2].split(", ")
        if choice[1]:
            known = {one.lower() for one in names}
            joined = ", ".join(names)
            return (
                None if str(value).lower() in known else f"String must be one of (case insensitive): {joined}"
            )
        return None if str(value) in names else f"String must be one of: {', '.join(names)}"
    return _violates_words(value, valid)


def _violates_words(value: Setting, valid: str) -> str | None:
    if valid == "non-empty string without ISO control characters":
        if not value:
            return "String may not be empty"
        controls = [one for one in value if ord(one) < 32 or 127 <= ord(one) < 160]
        if controls:
            codes = ", ".join(f"{ord(one):04X}" for one in controls)
            return f"String may not contain control sequences but had the following ASCII chars: {codes}"
        return None
    if valid.startswith("non-empty string") and value == "":
        return "String must be non-empty"
    if valid == "non-empty list" and not value:
        return "Empty list"
    if "unique" in valid and len(set(value)) != len(value):
        return "Duplicate alias provided."
    if "regex" in valid and value:
        try:
            re.compile(value)
        except re.error:
            return "Invalid regex"
    return None


@functools.cache
def kafka_keys(owner: str) -> ConfigDef:
    """The keys of one of Kafka's classes: "worker", "distributed", "connector", "source", "sink", "Cast", ..."""
    return ConfigDef(_table().get(owner, ()))


@functools.cache
def _table() -> dict[str, list[ConfigKey]]:
    table: dict[str, list[ConfigKey]] = {}
    text = files("ottla.connect.config").joinpath("configs.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        row = json.loads(line)
        kind = row["type"]
        default = row.get("default", NO_DEFAULT)
        table.setdefault(row["of"], []).append(
            ConfigKey(
                name=row["name"],
                type=kind,
                default=parse_type(row["name"], default, kind) if isinstance(default, str) else default,
                importance=row.get("importance", "LOW"),
                group=row.get("group"),
                order=row.get("order", -1),
                width=row.get("width", "NONE"),
                display_name=row.get("display", row["name"]),
                dependents=tuple(row.get("dependents", ())),
                valid=row.get("valid") or None,
            )
        )
    return table
