"""Deletions and settings: what the leader writes for them, and the rules that refuse them."""

from __future__ import annotations

from typing import Final

from ottla.json_types import JsonObject
from ottla.registry import names, records
from ottla.registry.contracts import check_metadata, check_rule_set
from ottla.registry.errors import RegistryError, not_permitted, subject_not_found
from ottla.registry.registry import LEVELS, MODES, Registry
from ottla.registry.state import Version

_KEPT: Final = (
    "alias",
    "aliasForDeks",
    "normalize",
    "validateFields",
    "validateRules",
    "compatibilityGroup",
    "compatibilityPolicy",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Settings beside the level. Those that validate are kept and given back, and have no effect."""
_CHECKED: Final = {
    "defaultMetadata": check_metadata,
    "overrideMetadata": check_metadata,
    "defaultRuleSet": check_rule_set,
    "overrideRuleSet": check_rule_set,
}


async def delete_subject(registry: Registry, subject: str, *, permanent: bool) -> list[int]:
    """Delete all versions of a subject; returns their numbers."""
    deleted: list[int] = []

    def decide() -> list[records.Pair]:
        deleted.clear()
        every = registry.state.versions(subject, deleted=True)
        if not every:
            raise subject_not_found(subject)
        _check_writable(registry, subject)
        live = [one for one in every if not one.deleted]
        for one in every if permanent else live:
            _check_unreferenced(registry, one)
        if permanent:
            if live:
                raise RegistryError(
                    404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            deleted.extend(one.version for one in every)
            return [
                *((records.schema_key(subject, number), None) for number in deleted),
                *_forget_settings(registry, subject),
            ]
        if not live:
            raise RegistryError(
                404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
            )
        deleted.extend(one.version for one in live)
        value = records.value({"subject": subject, "version": deleted[-1]})
        return [
            (records.scoped_key("DELETE_SUBJECT", subject), value),
            *_forget_settings(registry, subject),
        ]

    await registry.write(decide)
    return deleted


async def delete_version(registry: Registry, subject: str, number: int, *, permanent: bool) -> int:
    """Delete one version; returns its number."""
    deleted: list[int] = []

    def decide() -> list[records.Pair]:
        one = registry.version(subject, number, deleted=True)
        if number == -1 and not permanent:
            one = registry.version(subject, -1)
        _check_writable(registry, subject)
        _check_unreferenced(registry, one)
        deleted.append(one.version)
        key = records.schema_key(subject, one.version)
        if permanent:
            if not one.deleted:
                raise RegistryError(
                    404,
                    40407,
                    f"Subject '{subject}' Version {one.version} was not deleted first before being permanently"
                    " deleted",
                )
            return [(key, None)]
        if one.deleted:
            raise RegistryError(
                404,
                40406,
                f"Subject '{subject}' Version {one.version} was soft deleted.Set permanent=true to delete permanently",
            )
        pairs: list[records.Pair] = [(key, one.value(deleted=True))]
        if len(registry.state.versions(subject)) == 1:
            pairs += _forget_settings(registry, subject)
        return pairs

    await registry.write(decide)
    return deleted[-1]


def _forget_settings(registry: Registry, subject: str) -> list[records.Pair]:
    tables = (("MODE", registry.state.modes), ("CONFIG", registry.state.configs))
    return [(records.scoped_key(kind, subject), None) for kind, table in tables if subject in table]


def _check_writable(registry: Registry, subject: str) -> None:
    if registry.mode(subject).startswith("READONLY"):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def _check_unreferenced(registry: Registry, one: Version) -> None:
    if registry.state.references_to(one.subject, one.version):
        raise RegistryError(
            422,
            42206,
            "One or more references exist to the schema"
            f" {{magic=1,keytype=SCHEMA,subject={one.subject},version={one.version}}}.",
        )


# -- settings


def config_document(registry: Registry, scope: str | None, *, default_to_global: bool) -> JsonObject:
    """The configuration of a subject, a context or the registry."""
    found = registry.state.configs.get(scope)
    if found is None and scope is not None and not default_to_global:
        raise RegistryError(
            404, 40408, f"Subject '{scope}' does not have subject-level compatibility configured"
        )
    return {"compatibilityLevel": registry.level(scope), **_without_level(found or {})}


def _without_level(found: JsonObject) -> JsonObject:
    return {key: value for key, value in found.items() if key not in ("compatibilityLevel", "subject")}


async def set_config(registry: Registry, scope: str | None, body: JsonObject) -> JsonObject:
    """Set the configuration; returns what was set."""
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None and str(level).upper() not in LEVELS:
        raise RegistryError(
            422,
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive,"
            " forward_transitive, and full_transitive",
        )
    wanted = {key: body[key] for key in _KEPT if body.get(key) is not None}
    for key, check in _CHECKED.items():
        check(wanted.get(key))
    for key in ("alias", "aliasForDeks"):
        if wanted.get(key):
            names.check(str(wanted[key]))
    group = wanted.get("compatibilityGroup", "")
    if not isinstance(group, str):
        raise RegistryError(422, 42203, "compatibilityGroup is the name of a property of the metadata.")

    def decide() -> list[records.Pair]:
        if registry.mode(scope).startswith("READONLY"):
            raise not_permitted(f"Subject {scope} is in read-only mode")
        value = dict(registry.state.configs.get(scope, {}))
        if level is not None:
            value = {"compatibilityLevel": str(level).upper(), **_without_level(value)}
        value.update(wanted)
        return [(records.scoped_key("CONFIG", scope), records.value(value))]

    await registry.write(decide)
    return {**({"compatibility": str(level).upper()} if level is not None else {}), **wanted}


async def delete_config(registry: Registry, scope: str | None) -> JsonObject:
    """Delete a configuration; returns what it was."""
    before = config_document(registry, scope, default_to_global=False)

    def decide() -> list[records.Pair]:
        return [(records.scoped_key("CONFIG", scope), None)]

    await registry.write(decide)
    return before


def mode_document(registry: Registry, scope: str | None, *, default_to_global: bool) -> JsonObject:
    """The mode of a subject, a context or the registry."""
    if scope is not None and scope not in registry.state.modes and not default_to_global:
        raise RegistryError(404, 40409, f"Subject '{scope}' does not have subject-level mode configured")
    own = registry.state.modes.get(scope, {}).get("mode")
    return {"mode": own or registry.mode(scope)}


async def set_mode(registry: Registry, scope: str | None, mode: str, *, force: bool) -> JsonObject:
    """Set the mode; IMPORT needs a place without schemas, unless it is forced."""
    mode = mode.upper()
    if mode not in MODES:
        raise RegistryError(
            422,
            42204,
            "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT",
        )

    def decide() -> list[records.Pair]:
        if mode == "IMPORT" and registry.mode(scope) != "IMPORT" and not force:
            taken = [name for name in registry.state.subjects if _in_scope(registry, name, scope)]
            if taken:
                raise not_permitted("Cannot import since found existing subjects")
        value = dict(registry.state.modes.get(scope, {}))
        return [(records.scoped_key("MODE", scope), records.value({**value, "mode": mode}))]

    await registry.write(decide)
    return {"mode": mode}


def _in_scope(registry: Registry, subject: str, scope: str | None) -> bool:
    if not registry.state.versions(subject):
        return False
    if scope is None:
        return True
    context, plain = names.split(scope)
    return subject == scope if plain else names.context_of(subject) == context


async def delete_mode(registry: Registry, scope: str | None) -> JsonObject:
    """Delete a mode; returns what it was."""
    before = mode_document(registry, scope, default_to_global=False)

    def decide() -> list[records.Pair]:
        return [(records.scoped_key("MODE", scope), None)]

    await registry.write(decide)
    return before
