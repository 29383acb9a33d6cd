"""`mm2.properties` as MirrorMaker 2 reads it: clusters, flows `A->B`, keys of a flow over keys for all, defaults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.admin.settings import ClusterSettings
from ottla.client.cluster_settings import writer_settings
from ottla.client.errors import KafkaConfigurationError
from ottla.connect.config.providers import ConnectorProviders
from ottla.connect.failures import ConfigInvalid
from ottla.connect.properties import parse
from ottla.mirror import filters
from ottla.mirror.failures import MirrorError
from ottla.mirror.filters import NameFilter, name_filter
from ottla.mirror.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy

SOURCE_CONNECTOR: Final = "MirrorSourceConnector"

DEFAULTS: Final[Mapping[str, str]] = {
    "enabled": "false",
    "topics": ",".join(filters.TOPICS),
    "topics.exclude": ",".join(filters.TOPICS_EXCLUDE),
    "groups": ",".join(filters.GROUPS),
    "groups.exclude": ",".join(filters.GROUPS_EXCLUDE),
    "config.properties.exclude": ",".join(filters.CONFIGS_EXCLUDE),
    "use.defaults.from": "target",
    "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "replication.policy.separator": ".",
    "replication.policy.internal.topic.separator.enabled": "true",
    "replication.factor": "2",
    "tasks.max": "1",
    "offset-syncs.topic.location": "source",
    "offset-syncs.topic.replication.factor": "3",
    "checkpoints.topic.replication.factor": "3",
    "heartbeats.topic.replication.factor": "3",
    "offset.storage.replication.factor": "3",
    "heartbeats.replication.enabled": "true",
    "emit.offset-syncs.enabled": "true",
    "emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "5",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "5",
    "refresh.topics.enabled": "true",
    "refresh.topics.interval.seconds": "600",
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "600",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "600",
    "mirror.cycle.ms": "5000",
    "on.foreign.records": "stop",
    "offsets": "translated",
    "ottla.spark.master": "none",
}
"""MirrorMaker 2's keys and defaults, and a few of our own: the last ones, group offsets, which MirrorMaker 2 leaves
off, and how often groups are looked at."""

_CHOICES: Final = {
    "offset-syncs.topic.location": ("source", "target"),
    "on.foreign.records": ("stop", "resume"),
    "offsets": ("translated", "identical"),
    "use.defaults.from": ("source", "target"),
}
_WITHOUT_EFFECT: Final = frozenset(
    {
        *(
            "consumer.poll.timeout.ms",
            "admin.timeout.ms",
            "metric.names.formats",
            "listeners",
            *("offset.flush.interval.ms", "offset.lag.max"),
            *("refresh.groups.enabled", "refresh.groups.interval.seconds"),
        ),
        *("exactly.once.source.support", "dedicated.mode.enable.internal.rest", "forwarding.admin.class"),
        *(
            "config.storage.replication.factor",
            "status.storage.replication.factor",
            "name",
            "connector.class",
        ),
        *("key.converter", "value.converter", "header.converter", "group.id", "offset.storage.topic"),
        *("config.storage.topic", "status.storage.topic", "client.id", "add.source.alias.to.metrics"),
        *("topic.filter.class", "group.filter.class", "config.property.filter.class"),
    }
)
_CLIENT_PREFIXES: Final = ("security.", "ssl.", "sasl.")
_RESET: Final = "auto.offset.reset"
_SPARK_CONF: Final = "ottla.spark.conf."
_ROLES: Final = ("admin.", "consumer.", "producer.")
_POLICIES: Final = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")
_FILTERS: Final = {
    "topic.filter.class": "DefaultTopicFilter",
    "group.filter.class": "DefaultGroupFilter",
    "config.property.filter.class": "DefaultConfigPropertyFilter",
}
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The values of one flow."""

    source: str
    target: str
    values: Mapping[str, str]
    source_settings: ClusterSettings
    target_settings: ClusterSettings
    from_end: bool = False
    """Whether topics without a note begin at their ends: `auto.offset.reset=latest` of the source's consumer."""
    connector: str = SOURCE_CONNECTOR
    """The name under which notes are kept: that of the connector, in a Connect worker."""
    notes_topic: str | None = None
    """Where a Connect worker keeps offsets; None for MirrorMaker 2's name."""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session: `ottla.spark.conf.*` without that prefix."""

    @property
    def name(self) -> str:
        """`A->B`."""
        return f"{self.source}->{self.target}"

    @property
    def enabled(self) -> bool:
        """Whether topics are mirrored."""
        return self.flag("enabled")

    def flag(self, key: str) -> bool:
        """A value that is true or false."""
        return self.values[key].strip().lower() == "true"

    def number(self, key: str) -> int:
        """A whole number."""
        return int(self.values[key])

    def words(self, key: str) -> list[str]:
        """A list."""
        return _words(self.values[key])

    @property
    def policy(self) -> ReplicationPolicy:
        """The names at the target."""
        separator = self.values["replication.policy.separator"]
        internal = self.flag("replication.policy.internal.topic.separator.enabled")
        if self.identity:
            return IdentityReplicationPolicy(separator, internal, self.source)
        return DefaultReplicationPolicy(separator, internal)

    @property
    def identity(self) -> bool:
        """Whether topics keep their names."""
        return self.values["replication.policy.class"].endswith("IdentityReplicationPolicy")

    @property
    def identical(self) -> bool:
        """Whether records keep their offsets, where that can be."""
        return self.values["offsets"] == "identical"

    def topic_filter(self) -> NameFilter:
        """Which topics."""
        return name_filter("topics", self.words("topics"), self.words("topics.exclude"))

    def group_filter(self) -> NameFilter:
        """Which groups."""
        return name_filter("groups", self.words("groups"), self.words("groups.exclude"))

    def config_filter(self) -> NameFilter:
        """Which settings of topics."""
        return name_filter("config.properties", (".*",), self.words("config.properties.exclude"))

    @property
    def offsets_topic(self) -> str:
        """At the target: how far each partition is copied."""
        return self.notes_topic or f"mm2-offsets.{self.source}.internal"

    @property
    def runs_topic(self) -> str:
        """At the target: the map of runs."""
        return self.policy.runs_topic(self.source)

    @property
    def offset_syncs_topic(self) -> str:
        """MirrorMaker 2's pairs of offsets, at the source or at the target."""
        at_source = self.values["offset-syncs.topic.location"] == "source"
        return self.policy.offset_syncs_topic(self.target if at_source else self.source)

    def transactional_id(self, lane: int) -> str:
        """The id that fences a lane."""
        return f"ottla-mirror-{self.source}-{self.target}-{lane}"


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """A whole file."""

    clusters: tuple[str, ...]
    flows: tuple[FlowConfig, ...]
    """All that are enabled, and those that only send heartbeats."""
    warnings: tuple[str, ...] = field(default=())

    def flows_into(self, targets: Sequence[str] | None) -> list[FlowConfig]:
        """The flows into some clusters, all for None."""
        if targets is not None:
            for one in targets:
                if one not in self.clusters:
                    raise MirrorError(f"--clusters {one}: the file names only {', '.join(self.clusters)}")
        return [flow for flow in self.flows if targets is None or flow.target in targets]

    def copying_into(self, targets: Sequence[str] | None) -> list[FlowConfig]:
        """The same, of flows that copy topics: at least one."""
        found = [flow for flow in self.flows_into(targets) if flow.enabled]
        if not found:
            raise MirrorError(f"no enabled flow goes into {', '.join(targets or ())}, which --clusters names")
        return found

    def enabled_flow(self, source: str, target: str) -> FlowConfig | None:
        """An enabled flow by its clusters, if the file has it."""
        wanted = (one for one in self.flows if (one.source, one.target) == (source, target) and one.enabled)
        return next(wanted, None)

    def flow(self, source: str, target: str) -> FlowConfig:
        """A flow by its clusters."""
        found = self.enabled_flow(source, target)
        if found is not None:
            return found
        there = ", ".join(one.name for one in self.flows if one.enabled) or "none"
        raise MirrorError(f"the file has no enabled flow {source}->{target}; it has {there}")


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def read_config(path: Path) -> MirrorConfig:
    """The configuration in a file; MirrorError with a sentence if it is wrong."""
    return mirror_config(_read(path))


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise MirrorError(f"{path} cannot be read: {reason}") from None
    return parse(text)


def mirror_config(given: Mapping[str, str]) -> MirrorConfig:
    """The configuration of some keys."""
    keys = _resolved(given)
    clusters = tuple(dict.fromkeys(_words(keys.get("clusters", ""))))
    if not clusters:
        raise MirrorError("the file names no clusters: it needs a line like `clusters = A, B`")
    for alias in clusters:
        if not _ALIAS.fullmatch(alias):
            raise MirrorError(f"the cluster name '{alias}' must be of letters, digits, '.', '_' and '-'")
    found = []
    for source in clusters:
        for target in clusters:
            if source == target:
                continue
            flow = flow_config(keys, source, target)
            # A flow A->B with heartbeats needs those that B->A writes into A, as in MirrorMaker 2.
            if flow.enabled or flow.flag("emit.heartbeats.enabled"):
                found.append(flow)
    if not any(flow.enabled for flow in found):
        first = f"{clusters[0]}->{clusters[-1]}.enabled = true"
        raise MirrorError(f"the file enables no flow: it needs a line like `{first}`")
    _check_cycles(found)
    return MirrorConfig(clusters, tuple(found), tuple(_warnings(keys, clusters)))


def _resolved(given: Mapping[str, str]) -> Mapping[str, str]:
    """The keys with the references to providers replaced."""
    try:
        return ConnectorProviders(given).resolve(given)[0]
    except ConfigInvalid as error:
        raise MirrorError(str(error)) from None


def _check_cycles(flows: Sequence[FlowConfig]) -> None:
    both = {(one.source, one.target) for one in flows if one.enabled and one.identity}
    for source, target in sorted(both):
        if (target, source) in both:
            raise MirrorError(
                f"{source}->{target} and {target}->{source} both keep the names of topics: records would go round for "
                "ever. Use the DefaultReplicationPolicy, or enable one direction only"
            )


def flow_config(keys: Mapping[str, str], source: str, target: str) -> FlowConfig:
    """One flow of some keys."""
    prefix = f"{source}->{target}."
    values = {key: keys.get(prefix + key, keys.get(key, default)) for key, default in DEFAULTS.items()}
    # Enabling is a matter of each flow: MirrorMaker 2 reads no such key for all.
    values["enabled"] = keys.get(prefix + "enabled", "false")
    for key, value in values.items():
        _check(prefix, key, value)
    policy = values["replication.policy.class"].rpartition(".")[2]
    if policy not in _POLICIES:
        raise MirrorError(f"replication.policy.class={policy} is Java's: use {' or '.join(_POLICIES)}")
    for key, ours in _FILTERS.items():
        named = keys.get(prefix + key, keys.get(key))
        if named is not None and named.rpartition(".")[2] != ours:
            raise MirrorError(f"{key}={named} is a Java class: only {ours} works here")
    for key in keys:
        if key.removeprefix(prefix).startswith("transforms"):
            raise MirrorError(f"{key}: a mirror copies records as they are, without transforms")
    reset = next(
        (
            keys[key]
            for key in (f"{prefix}consumer.{_RESET}", f"{source}.consumer.{_RESET}", f"consumer.{_RESET}")
            if key in keys
        ),
        "earliest",
    )
    if reset not in ("earliest", "latest"):
        raise MirrorError(f"{source}.consumer.{_RESET}={reset} must be earliest or latest")
    return FlowConfig(
        source,
        target,
        values,
        _settings(keys, source, "consumer."),
        _settings(keys, target, "producer."),
        reset == "latest",
        spark_settings=_spark_settings(keys, prefix),
    )


def _spark_settings(keys: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Settings for all flows, then those of the flow."""
    found: dict[str, str] = {}
    for begin in (_SPARK_CONF, prefix + _SPARK_CONF):
        found |= {key.removeprefix(begin): value for key, value in keys.items() if key.startswith(begin)}
    return found


def _check(prefix: str, key: str, value: str) -> None:
    default = DEFAULTS[key]
    if default in ("true", "false") and value.strip().lower() not in ("true", "false"):
        raise MirrorError(f"{prefix}{key}={value} must be true or false")
    if default.isdigit() and not re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        raise MirrorError(f"{prefix}{key}={value} must be a whole number")
    if key in ("tasks.max", "mirror.cycle.ms", "replication.factor") and int(value) == 0:
        raise MirrorError(f"{prefix}{key} must not be 0")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise MirrorError(f"{prefix}{key}={value} must be {' or '.join(_CHOICES[key])}")


def _settings(keys: Mapping[str, str], alias: str, role: str) -> ClusterSettings:
    """How to reach a cluster: keys for all, then the cluster's, then those of its admin and of its role."""
    servers, options = _connection(keys, alias, role)
    try:
        return writer_settings(servers, options)
    except (KafkaConfigurationError, ValueError) as error:
        raise MirrorError(f"{alias}: {error}") from None


def client_properties(path: Path, alias: str) -> dict[str, str]:
    """How a consumer reaches a cluster of a file, with Kafka's names."""
    servers, options = _connection(_resolved(_read(path)), alias, "consumer.")
    return {**options, "bootstrap.servers": servers}


def _connection(keys: Mapping[str, str], alias: str, role: str) -> tuple[str, dict[str, str]]:
    servers = keys.get(f"{alias}.bootstrap.servers", "").strip()
    if not servers:
        raise MirrorError(f"the file has no {alias}.bootstrap.servers")
    options: dict[str, str] = {}
    for prefix in ("", f"{alias}.", f"{alias}.admin.", f"{alias}.{role}"):
        for key, value in keys.items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and name.startswith(_CLIENT_PREFIXES):
                options[name] = value
    return servers, options


def _warnings(keys: Mapping[str, str], clusters: Sequence[str]) -> list[str]:
    found = []
    for key in keys:
        name = key
        for source in clusters:
            for target in clusters:
                name = name.removeprefix(f"{source}->{target}.")
        if name == key and any(key.startswith(f"{alias}.") for alias in clusters):
            continue
        if (
            name in DEFAULTS
            or name == "clusters"
            or name.startswith((*_CLIENT_PREFIXES, *_ROLES, "config.providers"))
        ):
            continue
        if name.startswith(_SPARK_CONF):
            continue
        if name in _WITHOUT_EFFECT:
            if name not in _FILTERS:
                found.append(f"{key} has no effect here")
            continue
        near = difflib.get_close_matches(name, DEFAULTS, n=1)
        found.append(f"{key} is not a key of a mirror" + (f"; did you mean {near[0]}?" if near else ""))
    return found
