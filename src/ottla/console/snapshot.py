"""A cluster as a document: topics with their settings, groups, rules and schemas; and how two documents differ.

Each difference carries the command that makes this cluster like the other.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from ottla.admin.acls import describe_acls
from ottla.admin.configs import describe_configs
from ottla.errors import ApiException
from ottla.json_types import Json
from ottla.wire.enums import ConfigResourceType, ConfigSource

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

FORMAT: Final = 1
_TOPICS_PER_REQUEST: Final = 500
_PARTS: Final = ("topics", "groups", "acls", "schemas")


class SnapshotTopic(TypedDict):
    """A topic of a snapshot."""

    partitions: int
    replication: int
    settings: dict[str, str]


class Snapshot(TypedDict):
    """The document of a cluster. A part that its taker could not see is null."""

    format: int
    cluster: str
    name: str
    taken: str
    topics: dict[str, SnapshotTopic]
    groups: dict[str, str]
    acls: list[str] | None
    schemas: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same. `here` and `there` are words; an empty one stands for nothing."""

    part: str
    name: str
    what: str
    here: str
    there: str
    command: str = ""


def settings_of(cluster: Cluster, names: list[str]) -> dict[str, dict[str, str]]:
    """What is set for topics themselves, by topic. Sensitive values stay out."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        chunk = [(ConfigResourceType.TOPIC, name) for name in names[start : start + _TOPICS_PER_REQUEST]]
        for (_, name), entries in describe_configs(cluster, chunk).items():
            found[name] = {
                each.name: each.value or ""
                for each in entries
                if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and not each.is_sensitive
            }
    return found


def acls_of(cluster: Cluster) -> list[str] | None:
    """Every rule as a line of fields; None without an authorizer or the right to look."""
    try:
        found = describe_acls(cluster)
    except ApiException:
        return None
    return sorted(
        json.dumps(
            [
                entry.principal,
                entry.permission.name,
                entry.operation.name,
                pattern.kind.name,
                pattern.pattern.name,
                pattern.name,
                entry.host,
            ]
        )
        for pattern, entries in found.items()
        for entry in entries
    )


def check(document: Json | Snapshot) -> Snapshot:
    """A document of a file; ValueError if it is none."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("the file is no snapshot of a cluster")
    for part in _PARTS:
        held = document.get(part)
        if held is not None and not isinstance(held, dict | list):
            raise ValueError(f"the snapshot's {part} are damaged")
    if not isinstance(document.get("topics"), dict):
        raise ValueError("the snapshot has no topics")
    return Snapshot(**document)


def differences(here: Snapshot, there: Snapshot, bootstrap: str) -> list[Difference]:
    """What differs, topics first. The commands make `here` like `there`."""
    return [
        *_topics(here["topics"], there["topics"], bootstrap),
        *_groups(here.get("groups") or {}, there.get("groups") or {}),
        *_acls(here.get("acls"), there.get("acls"), bootstrap),
        *_schemas(here.get("schemas"), there.get("schemas")),
    ]


def _topics(
    here: Mapping[str, SnapshotTopic], there: Mapping[str, SnapshotTopic], bootstrap: str
) -> list[Difference]:
    found = []
    tool = f"ottla topics --bootstrap-server {bootstrap}"
    for name in sorted(here.keys() | there.keys()):
        one, other, quoted = here.get(name), there.get(name), shlex.quote(name)
        if one is None and other is not None:
            settings = "".join(
                f" --config {shlex.quote(f'{key}={value}')}" for key, value in _held(other).items()
            )
            command = (
                f"{tool} --create --topic {quoted} --partitions {int(other['partitions'])}"
                f" --replication-factor {int(other['replication'])}{settings}"
            )
            found.append(Difference("topic", name, "topic", "", _count(other), command))
        elif one is not None and other is None:
            command = f"{tool} --delete --topic {quoted}"
            found.append(Difference("topic", name, "topic", _count(one), "", command))
        elif one is not None and other is not None:
            found += _topic(name, one, other, bootstrap)
    return found


def _count(topic: SnapshotTopic) -> str:
    return "1 partition" if topic["partitions"] == 1 else f"{topic['partitions']} partitions"


def _held(topic: SnapshotTopic) -> dict[str, str]:
    settings = topic.get("settings")
    return {str(key): str(value) for key, value in settings.items()} if isinstance(settings, dict) else {}


def _topic(name: str, one: SnapshotTopic, other: SnapshotTopic, bootstrap: str) -> list[Difference]:
    found = []
    quoted = shlex.quote(name)
    mine, theirs = int(one["partitions"]), int(other["partitions"])
    if mine != theirs:
        command = (
            f"ottla topics --bootstrap-server {bootstrap} --alter --topic {quoted} --partitions {theirs}"
            if theirs > mine
            else ""
        )
        found.append(Difference("topic", name, "partitions", str(mine), str(theirs), command))
    if one["replication"] != other["replication"]:
        found.append(
            Difference("topic", name, "replication", str(one["replication"]), str(other["replication"]))
        )
    before, after = _held(one), _held(other)
    tool = f"ottla configs --bootstrap-server {bootstrap} --alter --topic {quoted}"
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            flag = (
                f"--add-config {shlex.quote(f'{key}={after[key]}')}"
                if key in after
                else f"--delete-config {key}"
            )
            found.append(
                Difference("topic", name, key, before.get(key, ""), after.get(key, ""), f"{tool} {flag}")
            )
    return found


def _groups(here: Mapping[str, str], there: Mapping[str, str]) -> list[Difference]:
    return [
        Difference("group", name, "group", str(here.get(name, "")), str(there.get(name, "")))
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]


def _acls(here: list[str] | None, there: list[str] | None, bootstrap: str) -> list[Difference]:
    if here is None or there is None:
        return []
    found = []
    for line in sorted(set(here) ^ set(there)):
        try:
            who, permission, operation, kind, pattern, name, host = map(str, json.loads(line))
        except ValueError:
            continue
        words = f"{who} {permission.lower()} {operation.lower()} {kind.lower()} {name}"
        flag = "deny" if permission == "DENY" else "allow"
        where = (
            "--cluster" if kind == "CLUSTER" else f"--{kind.lower().replace('_', '-')} {shlex.quote(name)}"
        )
        command = (
            f"ottla acls --bootstrap-server {bootstrap} --{'add' if line in there else 'remove'} --{flag}-principal"
            f" {shlex.quote(who)} --{flag}-host {shlex.quote(host)} --operation"
            f" {operation.title().replace('_', '')} {where} --resource-pattern-type {pattern.lower()}"
        )
        mine = words if line in here else ""
        found.append(Difference("rule", words, "rule", mine, "" if mine else words, command))
    return found


def _schemas(here: Mapping[str, str] | None, there: Mapping[str, str] | None) -> list[Difference]:
    if here is None or there is None:
        return []
    return [
        Difference("schema", name, "newest version", str(here.get(name, "")), str(there.get(name, "")))
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]
