"""Checks across the keys of a node's configuration: names, ids, roles, listeners and the quorum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.config.definitions import BROKER_KEYS, EXTENSION_KEYS, OWN_KEYS
from ottla.config.errors import ConfigError
from ottla.config.listeners import parse_address
from ottla.config.synonyms import base_of_listener_key

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_PLUGIN_PREFIXES = ("config.providers.", "rlmm.config.", "rsm.config.")
"""Prefixes of keys that Kafka passes to plug-ins unchanged."""

ALL_DIRECTORIES = ("*",)
"""The value of `cordoned.log.dirs` that means all of them."""

_MIB = 1 << 20


def is_known(name: str) -> bool:
    """A key of the table, a known plug-in's key, or one of them for a single listener."""
    base = base_of_listener_key(name) or name
    if base in BROKER_KEYS or base in EXTENSION_KEYS or name in OWN_KEYS:
        return True
    return name.startswith(_PLUGIN_PREFIXES)


def check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if not is_known(name):
            raise ConfigError(f"Unknown configuration key {name}{_suggestion(name)}", key=name)


def _suggestion(name: str) -> str:
    # Imported here: only a refused start needs it.
    import difflib

    close = difflib.get_close_matches(name, [*BROKER_KEYS, *OWN_KEYS], n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ": Kafka 4.3 has no such broker key"


def with_both_ids(given: Mapping[str, str]) -> dict[str, str]:
    """`node.id` and its old name `broker.id` are synonyms, as in Kafka."""
    both = dict(given)
    for key, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if key in both:
            both.setdefault(other, both[key])
    return both


def node_id(config: BrokerConfig) -> int:
    own = config.opt_int("node.id")
    if own is None:
        raise ConfigError("Missing configuration node.id: expected a number of at least 0", key="node.id")
    if config.int("broker.id") != own:
        raise ConfigError.bad_value("broker.id", config["broker.id"], f"the same value as node.id, {own}")
    return own


def inter_broker_listener_name(config: BrokerConfig) -> str:
    name = config.opt_str("inter.broker.listener.name")
    if name is not None:
        if config.is_set("security.inter.broker.protocol"):
            raise ConfigError.bad_value(
                "inter.broker.listener.name",
                name,
                "only one of it and security.inter.broker.protocol to be set",
            )
        return name.upper()
    return config.str("security.inter.broker.protocol")


def check_all(config: BrokerConfig) -> None:
    """The checks across keys of KafkaConfig that apply to this broker."""
    _check_roles(config)
    _check_quorum(config)
    _check_broker_listeners(config)
    _check_cordoned(config)
    _check_log(config)
    _check_network(config)


def _check_roles(config: BrokerConfig) -> None:
    if not config.roles:
        raise ConfigError("Missing required configuration process.roles: expected broker, controller or both")
    if not config.log_dirs:
        raise ConfigError("Missing configuration log.dirs: expected at least one directory")


def _check_quorum(config: BrokerConfig) -> None:
    bootstrap = config.list("controller.quorum.bootstrap.servers")
    for server in bootstrap:
        if parse_address(server) is None:
            raise ConfigError.bad_value(
                "controller.quorum.bootstrap.servers", ",".join(bootstrap), "HOST:PORT, separated by commas"
            )
    voter_ids = {voter.id for voter in config.voters}
    names, listening = config.controller_listener_names, {item.name for item in config.listeners}
    if not voter_ids and not bootstrap:
        # Unlike Kafka, this is valid for a cluster of one node: it needs neither voters nor a controller listener.
        if config.is_controller and config.is_broker and not names:
            return
        raise ConfigError(
            "Missing configuration controller.quorum.bootstrap.servers or controller.quorum.voters: "
            "expected the addresses of the controllers"
        )
    if not names:
        raise ConfigError(
            "Missing configuration controller.listener.names: expected the name of the controllers' listener",
            key="controller.listener.names",
        )
    shown = ",".join(names)
    if not config.is_controller:
        if config.node_id in voter_ids:
            raise ConfigError.bad_value(
                "node.id",
                config.node_id,
                "an id that is not in controller.quorum.voters, because process.roles has no controller",
            )
        if listening & set(names):
            raise ConfigError.bad_value(
                "controller.listener.names",
                shown,
                "none of the listeners, because process.roles has no controller",
            )
        return
    if voter_ids and config.node_id not in voter_ids:
        raise ConfigError.bad_value(
            "node.id",
            config.node_id,
            "one of the ids in controller.quorum.voters, because process.roles has controller",
        )
    if not set(names) <= listening:
        raise ConfigError.bad_value("controller.listener.names", shown, "names that appear in listeners")


def _check_broker_listeners(config: BrokerConfig) -> None:
    shown = ",".join(item.name for item in config.listeners)
    own = {item.name for item in config.broker_listeners}
    if not config.is_broker:
        if own:
            raise ConfigError.bad_value(
                "listeners", shown, "only controller listeners, because process.roles has no broker"
            )
        return
    if not own:
        raise ConfigError.bad_value(
            "listeners", shown, "at least one listener that is not in controller.listener.names"
        )
    for item in config.advertised_listeners:
        if item.host == "0.0.0.0":
            raise ConfigError.bad_value("advertised.listeners", item.host, "a routable address")
        if item.name not in {listener.name for listener in config.listeners}:
            raise ConfigError.bad_value("advertised.listeners", item.name, f"one of the listeners {shown}")
    advertised = {item.name for item in config.advertised_listeners if item.name in own} or own
    if config.inter_broker_listener_name not in advertised:
        raise ConfigError.bad_value(
            "inter.broker.listener.name",
            config.inter_broker_listener_name,
            "one of the listeners " + ",".join(sorted(advertised)),
        )


def _check_cordoned(config: BrokerConfig) -> None:
    key = "cordoned.log.dirs"
    cordoned = config.list(key)
    if cordoned != ALL_DIRECTORIES and not set(cordoned) <= set(config.log_dirs):
        expected = "only directories of log.dirs, which are " + ",".join(config.log_dirs) + "; or * alone"
        raise ConfigError.bad_value(key, ",".join(cordoned), expected)


def _check_log(config: BrokerConfig) -> None:
    for key, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = config.opt_int(key)
        if value is not None and value < low:
            raise ConfigError.bad_value(key, value, f"at least {low}")
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = config.opt_int(key)
        if value is not None and (value == 0 or value < -1):
            raise ConfigError.bad_value(key, value, "at least 1, or -1 for no limit")
    lag = config.int("log.cleaner.min.compaction.lag.ms")
    limit = config.int("log.cleaner.max.compaction.lag.ms")
    if lag > limit:
        raise ConfigError.bad_value(
            "log.cleaner.min.compaction.lag.ms", lag, f"at most log.cleaner.max.compaction.lag.ms, {limit}"
        )
    threads, buffer = config.int("log.cleaner.threads"), config.int("log.cleaner.dedupe.buffer.size")
    if threads and buffer // threads <= _MIB:
        raise ConfigError.bad_value(
            "log.cleaner.dedupe.buffer.size", buffer, "more than 1 MiB for each of log.cleaner.threads"
        )


def _check_network(config: BrokerConfig) -> None:
    queued, request = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    if 0 < queued < request:
        raise ConfigError.bad_value(
            "queued.max.request.bytes", queued, f"at least socket.request.max.bytes, {request}"
        )
    overrides = connection_overrides(config)
    if config.int("max.connections.per.ip") == 0 and not overrides:
        raise ConfigError.bad_value(
            "max.connections.per.ip", 0, "at least 1 while max.connections.per.ip.overrides is empty"
        )
    idle = config.int("connections.max.idle.ms")
    delay = config.int("connection.failed.authentication.delay.ms")
    if 0 <= idle <= delay:
        raise ConfigError.bad_value(
            "connections.max.idle.ms", idle, f"more than connection.failed.authentication.delay.ms, {delay}"
        )
    wait = config.int("replica.fetch.wait.max.ms")
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if config.int(key) < wait:
            raise ConfigError.bad_value(key, config.int(key), f"at least replica.fetch.wait.max.ms, {wait}")


def connection_overrides(config: BrokerConfig) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: how many connections each of these addresses may have."""
    key = "max.connections.per.ip.overrides"
    text = config.str(key)
    limits: dict[str, int] = {}
    for pair in (part.strip() for part in text.split(",") if part.strip()):
        host, _, count = pair.rpartition(":")
        if not host or not count.strip().isdigit():
            raise ConfigError.bad_value(key, text, "HOST:COUNT, separated by commas")
        limits[host.strip().strip("[]")] = int(count)
    return limits
