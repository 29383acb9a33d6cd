"""Data contracts: the metadata and the rules of schemas. They are checked, completed by settings, and compared.

Serializers execute rules; the registry never does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.registry.errors import invalid_schema
from ottla.registry.limits import MAX_RULES

_RULE_LISTS: Final = {
    "migrationRules": ("UPGRADE", "DOWNGRADE", "UPDOWN"),
    "domainRules": ("WRITE", "READ", "WRITEREAD"),
    "encodingRules": ("WRITE", "READ", "WRITEREAD"),
}
"""The lists of a rule set, and the modes that the rules of each may have."""
_KINDS: Final = ("TRANSFORM", "CONDITION")
_RULE_TEXTS: Final = ("name", "doc", "type", "expr", "onSuccess", "onFailure")


def check_metadata(given: Json) -> JsonObject | None:
    """Metadata: properties as texts, tags by path, and the names of sensitive properties. 42201 for anything else."""
    found = _object(given, "metadata")
    if found is None:
        return None
    properties, tags = found.get("properties"), found.get("tags")
    for one in (properties, tags):
        if one is not None and not isinstance(one, dict):
            raise invalid_schema("properties and tags of metadata are objects")
    if isinstance(properties, dict) and not all(isinstance(one, str) for one in properties.values()):
        raise invalid_schema("the properties of metadata are texts")
    if isinstance(tags, dict):
        for one in tags.values():
            _texts(one, "the tags of a path")
    _texts(found.get("sensitive"), "sensitive")
    return found


def check_rule_set(given: Json) -> JsonObject | None:
    """A rule set. Rules have names that differ; kind and mode are Confluent's words. 42201 for anything else."""
    found = _object(given, "ruleSet")
    if found is None:
        return None
    count = 0
    for key, modes in _RULE_LISTS.items():
        rules = found.get(key)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise invalid_schema(f"{key} is a list of rules")
        count += len(rules)
        if count > MAX_RULES:
            raise invalid_schema(f"it has more than {MAX_RULES} rules")
        seen: set[str] = set()
        for one in rules:
            name = _check_rule(one, key, modes)
            if name in seen:
                raise invalid_schema(f"{key} has two rules of the name {name}")
            seen.add(name)
    return found


def _check_rule(given: Json, key: str, modes: tuple[str, ...]) -> str:
    if not isinstance(given, dict):
        raise invalid_schema(f"each of {key} is an object")
    name = given.get("name")
    if not isinstance(name, str) or not name or len(name) > 256:
        raise invalid_schema(f"a rule of {key} has no name of 1 to 256 characters")
    for word in _RULE_TEXTS:
        if given.get(word) is not None and not isinstance(given[word], str):
            raise invalid_schema(f"{word} of the rule {name} is a text")
    if (given.get("kind") or "TRANSFORM") not in _KINDS:
        raise invalid_schema(f"the kind of the rule {name} is one of {', '.join(_KINDS)}")
    if (given.get("mode") or modes[-1]) not in modes:
        raise invalid_schema(f"the mode of the rule {name} in {key} is one of {', '.join(modes)}")
    _texts(given.get("tags"), f"tags of the rule {name}")
    params = given.get("params")
    if params is not None and not (
        isinstance(params, dict) and all(isinstance(one, str) for one in params.values())
    ):
        raise invalid_schema(f"params of the rule {name} are texts by name")
    if not isinstance(given.get("disabled") or False, bool):
        raise invalid_schema(f"disabled of the rule {name} is true or false")
    return name


def _object(given: Json, what: str) -> JsonObject | None:
    if given is not None and not isinstance(given, dict):
        raise invalid_schema(f"{what} must be an object")
    return given


def _texts(given: Json, what: str) -> None:
    if given is None:
        return
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise invalid_schema(f"{what} must be a list of texts")


def merged_metadata(layers: Sequence[Json]) -> JsonObject | None:
    """Metadata of several layers: later ones win by path and by property, sensitive names add up."""
    return _merged(layers, {"tags": _by_name, "properties": _by_name, "sensitive": _all})


def merged_rule_set(layers: Sequence[Json]) -> JsonObject | None:
    """Rule sets of several layers: rules come behind those of earlier layers, and remove the one of their name."""
    return _merged(layers, dict.fromkeys(_RULE_LISTS, _rules))


def _merged(layers: Sequence[Json], parts: Mapping[str, Callable[[Json, Json], Json]]) -> JsonObject | None:
    """Documents of several layers: the parts as their functions say, of anything else the last."""
    out: JsonObject | None = None
    for layer in layers:
        if not isinstance(layer, dict):
            continue
        if out is None:
            out = dict(layer)
            continue
        both = {key: merge(out.get(key), layer.get(key)) for key, merge in parts.items()}
        out = {**out, **layer, **{key: value for key, value in both.items() if value or key in out}}
    return out


def _by_name(first: Json, second: Json) -> Json:
    return {**_table(first), **_table(second)}


def _all(first: Json, second: Json) -> Json:
    return [*_items(first), *(one for one in _items(second) if one not in _items(first))]


def _rules(first: Json, second: Json) -> Json:
    replaced = {_name(one) for one in _items(second)}
    return [*(one for one in _items(first) if _name(one) not in replaced), *_items(second)]


def _name(rule: Json) -> str:
    return str(_table(rule).get("name"))


def _table(given: Json) -> JsonObject:
    return given if isinstance(given, dict) else {}


def _items(given: Json) -> list[Json]:
    return given if isinstance(given, list) else []


def same(first: Json, second: Json) -> bool:
    """Whether two documents mean the same: what is absent, null, false or empty does not differ."""
    return _plain(first) == _plain(second)


def _plain(given: Json) -> Json:
    if isinstance(given, dict):
        found = {key: _plain(value) for key, value in given.items()}
        return {key: value for key, value in found.items() if value not in (None, False, [], {})} or None
    if isinstance(given, list):
        return [_plain(one) for one in given] or None
    return given


def group_of(metadata: JsonObject | None, group: Json) -> Json:
    """The compatibility group of a schema: the value of the property that the setting names."""
    return _table((metadata or {}).get("properties")).get(group) if isinstance(group, str) else None
