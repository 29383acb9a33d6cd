"""The effective configuration of a topic: its overrides on top of the broker's defaults, typed and checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import TOPIC_KEYS, text_of
from ottla.config.errors import ConfigError
from ottla.config.synonyms import TOPIC_SYNONYMS
from ottla.config.values import TypedValues, Value

_logger = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})


class TopicConfig(msgspec.Struct, frozen=True):
    """One attribute for each topic key. -1 means no limit, as in Kafka."""

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    """`internal.segment.bytes` if that is set, which is Kafka's way to have segments under 1 MiB."""
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    ottla_mirror_offsets: bool = False

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def build(cls, broker: BrokerConfig, overrides: Mapping[str, str] = _NOTHING) -> TopicConfig:
        """The effective configuration. Raises a ConfigError for an unknown key or an invalid value."""
        values = topic_values(broker, overrides)
        typed = TypedValues(values)
        _check_together(broker, typed)
        # The table guarantees the type of each value.
        attributes: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
        attributes["cleanup_policy"] = frozenset(typed.list("cleanup.policy"))
        if attributes["internal_segment_bytes"] is not None:
            attributes["segment_bytes"] = attributes["internal_segment_bytes"]
        return cls(**attributes)

    @classmethod
    def in_force(cls, broker: BrokerConfig, stored: Mapping[str, str]) -> TopicConfig:
        """The configuration from the metadata log. Invalid values are ignored: they must never stop a broker."""
        usable = usable_overrides(stored)
        try:
            return cls.build(broker, usable)
        except ConfigError as error:
            _logger.error("The configuration of a topic is ignored: %s", error.message)
            return cls.build(broker)


def usable_overrides(stored: Mapping[str, str]) -> dict[str, str]:
    """The stored overrides of a topic that this version can use; another version may have written others."""
    usable: dict[str, str] = {}
    for name, text in stored.items():
        definition = TOPIC_KEYS.get(name)
        try:
            if definition is not None:
                definition.parse(text)
                usable[name] = text
        except ConfigError as error:
            _logger.error("A configuration key of a topic is ignored: %s", error.message)
    return usable


def topic_values(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """The typed value of every topic key, each valid by itself."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}", key=name)
    return {name: topic_value(broker, overrides, name) for name in TOPIC_KEYS}


def topic_value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """The typed value of one topic key."""
    text = overrides.get(name)
    return default_value(broker, name) if text is None else TOPIC_KEYS[name].parse(text)


def default_value(broker: BrokerConfig, name: str) -> Value:
    """The value of a topic key for topics that do not set it."""
    definition = TOPIC_KEYS[name]
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker[synonym.name]
        if value is None:
            continue
        if synonym.factor != 1 and isinstance(value, int):
            value = value * synonym.factor if value >= 0 else -1
        # The topic's range may be narrower than the broker key's: a broker default must fit it too.
        definition.parse(text_of(value))
        return value
    return definition.parse(definition.default)


def _check_together(broker: BrokerConfig, values: TypedValues) -> None:
    least, most = values.int("min.compaction.lag.ms"), values.int("max.compaction.lag.ms")
    if least > most:
        raise ConfigError.bad_value("min.compaction.lag.ms", least, f"at most max.compaction.lag.ms, {most}")
    if not values.bool("remote.storage.enable"):
        return
    if not broker.bool("remote.log.storage.system.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker: remote.storage.enable cannot be true "
            "where remote.log.storage.system.enable is false.",
            key="remote.storage.enable",
        )
    if "compact" in values.list("cleanup.policy"):
        raise ConfigError.bad_value("remote.storage.enable", "true", "false for a compacted topic")
    for total in ("retention.ms", "retention.bytes"):
        local = "local." + total
        own, limit = values.int(local), values.int(total)
        if limit != -1 and own != -2 and (own == -1 or own > limit):
            raise ConfigError.bad_value(local, own, f"at most {total}, {limit}")
        if values.bool("remote.log.copy.disable") and own not in (-2, limit):
            raise ConfigError.bad_value(
                local, own, f"the same as {total}, {limit}, while copying is disabled"
            )
