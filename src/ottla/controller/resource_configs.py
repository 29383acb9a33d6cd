"""The config keys of group and client-metrics resources, and their checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import BROKER_KEYS, ConfigDef, UpdateMode
from ottla.config.durations import is_offset_reset
from ottla.config.errors import ConfigError
from ottla.config.validators import compile_check
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ConfigType

_INTEGER: Final = re.compile(r"[+-]?\d+")


def _define(name: str, type_: ConfigType, default: str, valid: str | None = None) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=type_,
        default=default,
        required=False,
        importance="MEDIUM",
        update_mode=UpdateMode.CLUSTER_WIDE,
        internal=False,
        check=compile_check(valid),
    )


def broker_synonym(name: str) -> str:
    """The broker key that holds the default of a group key."""
    return f"group.{name}"


def _bounds(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _with_broker_default(name: str, valid: str) -> ConfigDef:
    return _define(name, ConfigType.INT, BROKER_KEYS[broker_synonym(name)].default or "0", valid)


GROUP_KEYS: Final[dict[str, ConfigDef]] = {
    definition.name: definition
    for definition in (
        _with_broker_default("consumer.session.timeout.ms", "[1,...]"),
        _with_broker_default("consumer.heartbeat.interval.ms", "[1,...]"),
        _with_broker_default("consumer.assignment.interval.ms", "[0,...]"),
        _with_broker_default("share.session.timeout.ms", "[1,...]"),
        _with_broker_default("share.heartbeat.interval.ms", "[1,...]"),
        _with_broker_default("share.record.lock.duration.ms", "[1000,...]"),
        _with_broker_default("share.delivery.count.limit", "[2,...]"),
        _with_broker_default("share.partition.max.record.locks", "[100,...]"),
        _define("share.auto.offset.reset", ConfigType.STRING, "latest"),
        _define(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            "[read_committed, read_uncommitted]",
        ),
        _define("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true"),
        _with_broker_default("share.assignment.interval.ms", "[0,...]"),
        _with_broker_default("streams.session.timeout.ms", "[1,...]"),
        _with_broker_default("streams.heartbeat.interval.ms", "[1,...]"),
        _with_broker_default("streams.num.standby.replicas", "[0,...]"),
        _with_broker_default("streams.initial.rebalance.delay.ms", "[0,...]"),
        _with_broker_default("streams.assignment.interval.ms", "[0,...]"),
    )
}
"""The configs of one group; most have a broker-wide default and bounds."""

CLIENT_METRICS_KEYS: Final[dict[str, ConfigDef]] = {
    definition.name: definition
    for definition in (
        _define("metrics", ConfigType.LIST, ""),
        _define("interval.ms", ConfigType.INT, "300000", "[100,...,3600000]"),
        _define("match", ConfigType.LIST, ""),
    )
}
"""The configs of a subscription to clients' metrics."""

_MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_group(config: BrokerConfig, wanted: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG for a group's configuration that is invalid or outside the broker's bounds."""
    values = {
        name: config.int(broker_synonym(name)) for name in GROUP_KEYS if broker_synonym(name) in BROKER_KEYS
    }
    for name, text in wanted.items():
        if name not in GROUP_KEYS:
            raise ConfigError(f"Unknown group config name: {name}", key=name)
        value = GROUP_KEYS[name].parse(text)
        if not isinstance(value, int):
            continue
        values[name] = value
        low, high = (config.int(key) if key in BROKER_KEYS else None for key in _bounds(name))
        if low is not None and value < low:
            raise ConfigError(f"{name} must be greater than or equal to {_bounds(name)[0]}", key=name)
        if high is not None and value > high:
            raise ConfigError(f"{name} must be less than or equal to {_bounds(name)[1]}", key=name)
    most = config.int("group.streams.max.standby.replicas")
    if values["streams.num.standby.replicas"] > most:
        name, most_key = "streams.num.standby.replicas", "group.streams.max.standby.replicas"
        raise ConfigError(f"{name} must be less than or equal to {most_key}", key=name)
    reset = wanted.get("share.auto.offset.reset")
    if reset is not None and not is_offset_reset(reset):
        raise ConfigError.bad_value(
            "share.auto.offset.reset", reset, "latest, earliest or by_duration:<ISO-8601 duration>"
        )
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = values[f"{kind}.session.timeout.ms"], values[f"{kind}.heartbeat.interval.ms"]
        if session <= heartbeat:
            raise ConfigError.bad_value(
                f"{kind}.session.timeout.ms", session, f"more than {kind}.heartbeat.interval.ms, {heartbeat}"
            )


def check_client_metrics(wanted: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST for unknown keys and intervals out of range, INVALID_CONFIG for what cannot be parsed."""
    for name, text in wanted.items():
        if name not in CLIENT_METRICS_KEYS:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}.")
        try:
            value = CLIENT_METRICS_KEYS[name].parse(text)
        except ConfigError as error:
            if CLIENT_METRICS_KEYS[name].type is ConfigType.INT and not _INTEGER.fullmatch(text.strip()):
                raise
            raise ApiException(ErrorCode.INVALID_REQUEST, error.message) from error
        if name == "match" and isinstance(value, tuple):
            for selector in value:
                _check_selector(selector, text)


def _check_selector(selector: str, text: str) -> None:
    key, equals, pattern = selector.partition("=")
    if not equals or key.strip() not in _MATCH_KEYS:
        raise ConfigError.bad_value("match", text, "KEY=PATTERN with a key of " + ", ".join(_MATCH_KEYS))
    try:
        re.compile(pattern.strip())
    except re.error as error:
        raise ConfigError.bad_value("match", text, f"a regular expression after {key}=; {error}") from error
