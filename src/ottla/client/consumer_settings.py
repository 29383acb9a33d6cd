"""The consumer's settings: defaults, contradictions, and librdkafka's names for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping

from ottla.client.errors import KafkaConfigurationError
from ottla.client.settings import (
    COMMON,
    Settings,
    common_engine_settings,
    merge,
    renamed,
    with_engine_config,
)


class RangePartitionAssignor:
    """Assigns each topic's partitions in ranges, one for each member.

    >>> RangePartitionAssignor.name
    'range'
    """

    name = "range"


class RoundRobinPartitionAssignor:
    """Assigns all partitions one by one in turn.

    >>> RoundRobinPartitionAssignor.name
    'roundrobin'
    """

    name = "roundrobin"


class CooperativeStickyAssignor:
    """Members keep their partitions, and a rebalance moves only what it must.

    >>> from ottla import KafkaConsumer
    >>> consumer = KafkaConsumer(
    ...     bootstrap_servers=bootstrap_servers,
    ...     group_id="sticky",
    ...     partition_assignment_strategy=[CooperativeStickyAssignor],
    ... )
    >>> consumer.close()
    """

    name = "cooperative-sticky"


DEFAULTS: Settings = {
    **COMMON,
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "group_protocol": "classic",
    "group_remote_assignor": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 500,
    "fetch_max_bytes": 52_428_800,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "default_offset_commit_callback": None,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "allow_auto_create_topics": True,
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
    "consumer_timeout_ms": float("inf"),
    "exclude_internal_topics": True,
}

_RENAMED = {
    "client_rack": "client.rack",
    "group_instance_id": "group.instance.id",
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "check_crcs": "check.crcs",
    "isolation_level": "isolation.level",
    "allow_auto_create_topics": "allow.auto.create.topics",
    "max_poll_interval_ms": "max.poll.interval.ms",
}

_CLASSIC_ONLY = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
_RESETS = {"smallest": "earliest", "largest": "latest"}
_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")


def consumer_settings(given: Mapping[str, object]) -> Settings:
    settings = merge(DEFAULTS, given, "KafkaConsumer")
    reset = settings["auto_offset_reset"]
    settings["auto_offset_reset"] = _RESETS.get(reset, reset)
    if settings["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise KafkaConfigurationError(
            f"isolation_level must be read_uncommitted or read_committed, not {settings['isolation_level']!r}"
        )
    wait, timeout = settings["fetch_max_wait_ms"], settings["request_timeout_ms"]
    idle = settings["connections_max_idle_ms"]
    if not wait < timeout < idle:
        raise KafkaConfigurationError(
            f"fetch_max_wait_ms ({wait}) must be below request_timeout_ms ({timeout}), "
            f"and that below connections_max_idle_ms ({idle})"
        )
    _check_group(settings, given)
    return settings


def _check_group(settings: Settings, given: Mapping[str, object]) -> None:
    instance = settings["group_instance_id"]
    if instance is not None:
        if settings["group_id"] is None:
            raise KafkaConfigurationError("group_instance_id needs a group_id")
        if not isinstance(instance, str) or instance in (".", "..") or not _INSTANCE_ID.fullmatch(instance):
            raise KafkaConfigurationError(
                f"group_instance_id must be 1 to 249 letters, digits, '.', '_' or '-', not {instance!r}"
            )
    protocol = settings["group_protocol"]
    if protocol not in ("classic", "consumer"):
        raise KafkaConfigurationError(f"group_protocol must be classic or consumer, not {protocol!r}")
    if protocol == "consumer" and (against := [name for name in _CLASSIC_ONLY if name in given]):
        raise KafkaConfigurationError(
            f"{', '.join(against)} cannot be set with group_protocol='consumer', where the broker decides"
        )


def consumer_engine_settings(settings: Settings) -> Settings:
    engine = common_engine_settings(settings) | renamed(settings, _RENAMED)
    # A consumer without a group never joins one or commits; librdkafka wants a name all the same.
    engine["group.id"] = settings["group_id"] or f"ottla-no-group-{uuid.uuid4()}"
    # Positions, commits and resets are kept by the consumer: what it has fetched ahead is not yet consumed.
    engine["enable.auto.commit"] = False
    engine["enable.auto.offset.store"] = False
    engine["auto.offset.reset"] = "error"
    engine["max.in.flight"] = engine.pop("max.in.flight.requests.per.connection")
    # With its queue full the engine would pause for a second, in which a fast reader empties it.
    engine["fetch.queue.backoff.ms"] = 10
    # librdkafka wants room for one whole message, and for the response around it.
    engine["fetch.max.bytes"] = max(settings["fetch_max_bytes"], 1_000_000)
    engine["receive.message.max.bytes"] = max(
        settings["receive_message_max_bytes"],
        engine["fetch.max.bytes"] + max(512, settings["max_partition_fetch_bytes"]),
    )
    if settings["group_protocol"] == "consumer":
        engine["group.protocol"] = "consumer"
        if settings["group_remote_assignor"]:
            engine["group.remote.assignor"] = settings["group_remote_assignor"]
    else:
        engine["partition.assignment.strategy"] = _strategies(settings["partition_assignment_strategy"])
        engine["session.timeout.ms"] = settings["session_timeout_ms"]
        engine["heartbeat.interval.ms"] = settings["heartbeat_interval_ms"]
    return with_engine_config(engine, settings)


def _strategies(given: str | type | Iterable[object]) -> str:
    known = {
        "range": "range",
        "RangePartitionAssignor": "range",
        "roundrobin": "roundrobin",
        "RoundRobinPartitionAssignor": "roundrobin",
        "cooperative-sticky": "cooperative-sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
    names = []
    for one in [given] if isinstance(given, str | type) else list(given):
        strategy = one if isinstance(one, str) else str(getattr(one, "name", one))
        if strategy not in known:
            raise KafkaConfigurationError(
                f"partition_assignment_strategy {strategy} is not one of range, roundrobin, cooperative-sticky"
            )
        names.append(known[strategy])
    if "cooperative-sticky" in names and len(set(names)) > 1:
        raise KafkaConfigurationError("cooperative-sticky cannot be mixed with range or roundrobin")
    return ",".join(dict.fromkeys(names))
