"""Topics of a flow: which ones are mirrored, and making, growing and configuring their copies at the target."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ottla.admin.cluster import Cluster
from ottla.admin.configs import alter_configs, describe_configs
from ottla.admin.errors import raise_for
from ottla.admin.topics import NewPartitions, NewTopic, create_partitions, create_topics
from ottla.errors import ErrorCode
from ottla.mirror.config import FlowConfig
from ottla.mirror.failures import MirrorError
from ottla.mirror.policy import is_cycle
from ottla.wire.enums import ConfigResourceType, ConfigSource

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_MAX_MESSAGE: Final = "max.message.bytes"
MIRROR_OFFSETS: Final = "ottla.mirror.offsets"
"""The topic key of Ottla's brokers."""
_TOPIC: Final = ConfigResourceType.TOPIC
_BATCH_OF_TOPICS: Final = 200
"""How many topics one request names."""


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A topic of the source and its name at the target."""

    name: str
    remote: str
    partitions: int
    topic_id: str


def mirrored_topics(flow: FlowConfig, source: Cluster) -> dict[str, MirroredTopic]:
    """The topics of the source that a flow mirrors."""
    policy, wanted = flow.policy, flow.topic_filter()
    heartbeats = flow.flag("heartbeats.replication.enabled")
    found: dict[str, MirroredTopic] = {}
    for topic in source.metadata(None).topics:
        name = topic.name or ""
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            continue
        chosen = name in wanted or (heartbeats and policy.is_heartbeats(name))
        if not chosen or policy.is_internal(name) or is_cycle(policy, name, flow.target):
            continue
        remote = policy.remote_topic(flow.source, name)
        # Before Apache Kafka 2.8 topics have no id.
        topic_id = bytes(topic.topic_id).hex() if any(topic.topic_id) else ""
        found[name] = MirroredTopic(name, remote, len(topic.partitions), topic_id)
    return dict(sorted(found.items()))


def is_another(known: str, now: str) -> bool:
    """Whether two ids are those of different topics; a source that is upgraded gives ids to those it has."""
    return "" not in (known, now) and known != now


def make_remote_topics(
    flow: FlowConfig, source: Cluster, target: Cluster, topics: Mapping[str, MirroredTopic]
) -> None:
    """Creates what is missing at the target, and gives topics the partitions that the source has more."""
    there = {topic.name or "": len(topic.partitions) for topic in target.metadata(None).topics}
    missing = [topic for topic in topics.values() if topic.remote not in there]
    configs = source_configs(flow, source, [topic.name for topic in missing])
    if missing:
        configs = _known_there(flow, target, configs)
    replicas = _replication(flow, target)
    for some in _batches(missing):
        new = [
            NewTopic(topic.remote, topic.partitions, replicas, topic_configs=configs[topic.name])
            for topic in some
        ]
        if flow.identical:
            new = _with_offsets(target, new)
        for result in create_topics(target, new).topics if new else ():
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise_for(result.error_code, result.error_message, f"topic {result.name} at {flow.target}")
            _logger.info("%s: topic %s created at %s", flow.name, result.name, flow.target)
    grown = {
        topic.remote: NewPartitions(topic.partitions)
        for topic in topics.values()
        if there.get(topic.remote, topic.partitions) < topic.partitions
    }
    if grown:
        for one in create_partitions(target, grown).results:
            raise_for(one.error_code, one.error_message, f"topic {one.name} at {flow.target}")
            _logger.info("%s: topic %s grown at %s", flow.name, one.name, flow.target)


def _known_there(
    flow: FlowConfig, target: Cluster, configs: Mapping[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    """The settings that the target's brokers know: an older source has some that are gone."""
    ((_, entries),) = describe_configs(target, [(_TOPIC, flow.runs_topic)]).items()
    known = {entry.name for entry in entries}
    unknown = {name for mine in configs.values() for name in mine if name not in known}
    if unknown:
        _logger.warning(
            "%s: %s has no settings %s: copies go without", flow.name, flow.target, ", ".join(sorted(unknown))
        )
    return {
        topic: {name: value for name, value in mine.items() if name in known}
        for topic, mine in configs.items()
    }


def _with_offsets(target: Cluster, new: list[NewTopic]) -> list[NewTopic]:
    """Creates topics that keep the source's offsets; returns those whose brokers do not know the key: Kafka's."""
    keeping = [
        replace(one, topic_configs={**(one.topic_configs or {}), MIRROR_OFFSETS: "true"}) for one in new
    ]
    refused = {
        result.name
        for result in create_topics(target, keeping).topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
    return [one for one in new if one.name in refused]


def open_copies(target: Cluster, remotes: Iterable[str]) -> None:
    """After the switch: copies that only a mirror could write to take records of producers."""
    for some in _batches(list(remotes)):
        for (_, name), entries in describe_configs(target, [(_TOPIC, name) for name in some]).items():
            if any(entry.name == MIRROR_OFFSETS and entry.value == "true" for entry in entries):
                alter_configs(target, _TOPIC, name, deleted=[MIRROR_OFFSETS])


def _replication(flow: FlowConfig, target: Cluster) -> int:
    wanted, brokers = flow.number("replication.factor"), len(target.nodes())
    if wanted > brokers:
        _logger.warning(
            "%s: topics get %d replicas, not %d: %s has no more brokers",
            flow.name,
            brokers,
            wanted,
            flow.target,
        )
    return min(wanted, brokers)


def source_configs(flow: FlowConfig, source: Cluster, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings of topics that their copies get."""
    wanted = flow.config_filter()
    defaults_too = flow.values["use.defaults.from"] == "source"
    found: dict[str, dict[str, str]] = {}
    for some in _batches(list(names)):
        for (_, name), entries in describe_configs(source, [(_TOPIC, name) for name in some]).items():
            found[name] = {
                entry.name: entry.value
                for entry in entries
                if entry.value is not None
                and not entry.is_read_only
                and not entry.is_sensitive
                and entry.name in wanted
                and (defaults_too or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG)
            }
    return found


def sync_configs(
    flow: FlowConfig, source: Cluster, target: Cluster, topics: Mapping[str, MirroredTopic]
) -> int:
    """Gives copies the settings of their topics; those that the source does not set become the target's defaults."""
    changed = 0
    mirrored = flow.config_filter()
    wanted = source_configs(flow, source, topics)
    for some in _batches(list(topics.values())):
        now = describe_configs(target, [(_TOPIC, topic.remote) for topic in some])
        for topic in some:
            known = {entry.name for entry in now[_TOPIC, topic.remote]}
            own = {
                entry.name: entry.value
                for entry in now[_TOPIC, topic.remote]
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
            mine = {name: value for name, value in wanted[topic.name].items() if name in known}
            added = {name: value for name, value in mine.items() if own.get(name) != value}
            deleted = [
                name for name in own if name not in mine and name in mirrored and name != MIRROR_OFFSETS
            ]
            if added or deleted:
                alter_configs(target, _TOPIC, topic.remote, added=added, deleted=deleted)
                changed += 1
    return changed


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """What the copy of a topic takes."""

    max_batch_bytes: int
    deletes: bool
    """Whether records may be deleted from its beginning."""
    compacts: bool
    keeps_offsets: bool = False
    """Whether its brokers take batches at the source's offsets: Ottla's do, with `ottla.mirror.offsets=true`."""


def copy_limits(target: Cluster, topics: Mapping[str, MirroredTopic]) -> dict[str, CopyLimits]:
    """The limits of copies, by the source's names of the topics."""
    found: dict[str, CopyLimits] = {}
    for some in _batches(list(topics.values())):
        now = describe_configs(target, [(_TOPIC, topic.remote) for topic in some])
        for topic in some:
            values = {entry.name: entry.value or "" for entry in now[_TOPIC, topic.remote]}
            limit = values.get(_MAX_MESSAGE, "")
            if not limit.isdigit():
                raise MirrorError(f"{topic.remote} does not tell its {_MAX_MESSAGE}")
            cleanup = values.get("cleanup.policy", "")
            found[topic.name] = CopyLimits(
                int(limit), "delete" in cleanup, "compact" in cleanup, values.get(MIRROR_OFFSETS) == "true"
            )
    return found


def _batches(items: list[T]) -> Iterable[list[T]]:
    return (items[at : at + _BATCH_OF_TOPICS] for at in range(0, len(items), _BATCH_OF_TOPICS))
