"""Settings of a connector's clients: the worker's, then `producer.` or `consumer.`, then the connector's overrides.

A policy of the worker says which overrides a connector may give.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.settings import ClusterSettings
from ottla.client.cluster_settings import is_java_security, writer_settings
from ottla.client.settings import COMMON, RENAMED
from ottla.connect.config.definitions import parse_type
from ottla.connect.config.worker import WorkerConfig
from ottla.connect.failures import ConfigInvalid
from ottla.records.codecs import COMPRESSION_NAMES

_logger = logging.getLogger(__name__)

POLICY: Final = "connector.client.config.override.policy"
ALLOWLIST: Final = "connector.client.config.override.allowlist"
_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_TUNED: Final = {
    "producer": ("batch.size", "compression.type", "max.request.size"),
    "consumer": ("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes"),
}
"""What `ClientTuning` is made of."""
_OF_GROUPS: Final = frozenset({"group.id", "auto.offset.reset", "isolation.level"})
"""What the run of a sink reads by itself."""
_CODECS: Final = {name: codec for name, codec in COMPRESSION_NAMES.items() if name != "uncompressed"}
_BATCH_BYTES: Final = 1_000_000
_FETCH_WAIT_MS: Final = 500
_RENAMED: Final = {theirs: ours for ours, theirs in RENAMED.items()}

Policy = Callable[[str], str | None]
"""Why a client's key may not be overridden; None if it may."""


def override_policy(worker: Mapping[str, str]) -> Policy:
    """The policy of a worker; ConfigInvalid names the known ones.

    >>> override_policy({POLICY: "None"})("batch.size")
    "The 'None' policy does not allow 'batch.size' to be overridden in the connector configuration."
    >>> override_policy({POLICY: "Allowlist", ALLOWLIST: "batch.size,acks"})("acks") is None
    True
    """
    given = worker.get(POLICY, "All")
    name = given.removeprefix(_PACKAGE).removesuffix("ConnectorClientConfigOverridePolicy")
    allowed: frozenset[str] | None
    match name:
        case "All":
            allowed = None
        case "None":
            allowed = frozenset()
        case "Principal":
            allowed = _PRINCIPAL
        case "Allowlist":
            listed = (one.strip() for one in worker.get(ALLOWLIST, "").split(","))
            allowed = frozenset(one for one in listed if one)
        case _:
            raise ConfigInvalid(
                f"Invalid value {given} for configuration {POLICY}: it is All, None, Principal or Allowlist; "
                "policies in Java run in Apache Kafka Connect only"
            )

    def refuse(key: str) -> str | None:
        if allowed is None or key in allowed:
            return None
        return f"The '{name}' policy does not allow '{key}' to be overridden in the connector configuration."

    return refuse


def client_settings(worker: WorkerConfig, config: Mapping[str, str], kind: str) -> ClusterSettings:
    """The cluster that a connector reads or writes, and the login there. `config` has providers' values filled in."""
    role = "producer" if kind == "source" else "consumer"
    options = known_options(worker.originals)
    options |= known_options(worker.prefixed(f"{role}."))
    prefix = f"{role}.override."
    given = _without_prefix(config, prefix)
    own = known_options(given)
    for key in sorted(set(given) - set(own) - _OF_GROUPS - set(_TUNED[role])):
        _logger.warning("connector %s: %s%s has no effect here", config.get("name"), prefix, key)
    options |= own
    options.setdefault("client.id", f"connector-{role}-{config.get('name')}-0")
    servers = options.pop("bootstrap.servers", worker.bootstrap_servers)
    return writer_settings(str(servers), options)


@dataclass(frozen=True, slots=True)
class ClientTuning:
    """How a connector's clients write and read, by Kafka's keys. None leaves a bound to the worker."""

    compression: int = 0
    batch_bytes: int = _BATCH_BYTES
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = _FETCH_WAIT_MS
    fetch_max_bytes: int | None = None
    partition_fetch_bytes: int | None = None


def client_tuning(worker: WorkerConfig, config: Mapping[str, str], kind: str) -> ClientTuning:
    """The tuning of a connector: its overrides, else the worker's `producer.` or `consumer.` keys.

    >>> from ottla.connect.config.worker import worker_config
    >>> worker = worker_config({"bootstrap.servers": "a:1", "producer.compression.type": "zstd"})
    >>> tuning = client_tuning(worker, {"producer.override.batch.size": "16384"}, "source")
    >>> tuning.compression, tuning.batch_bytes
    (4, 16384)
    """
    role = "producer" if kind == "source" else "consumer"
    texts = {**worker.prefixed(f"{role}."), **_without_prefix(config, f"{role}.override.")}
    codec = texts.get("compression.type", "none")
    if codec not in _CODECS:
        raise ConfigInvalid(
            f"Invalid value {codec} for configuration compression.type: String must be one of: {', '.join(_CODECS)}"
        )

    def whole(key: str, least: int) -> int | None:
        if key not in texts:
            return None
        found = int(parse_type(key, texts[key], "INT"))
        if found < least:
            raise ConfigInvalid(
                f"Invalid value {found} for configuration {key}: Value must be at least {least}"
            )
        return found

    batches = [one for one in (whole("batch.size", 0), whole("max.request.size", 0)) if one is not None]
    wait_ms = whole("fetch.max.wait.ms", 0)
    return ClientTuning(
        compression=int(_CODECS[codec]),
        # Kafka's 0 stands for batches of one record, which the smallest bound gives too.
        batch_bytes=max(1, min([*batches, _BATCH_BYTES])),
        fetch_min_bytes=whole("fetch.min.bytes", 0) or 1,
        fetch_max_wait_ms=_FETCH_WAIT_MS if wait_ms is None else wait_ms,
        fetch_max_bytes=whole("fetch.max.bytes", 0),
        partition_fetch_bytes=whole("max.partition.fetch.bytes", 0),
    )


def _without_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}


def known_options(given: Mapping[str, str]) -> dict[str, str | int]:
    """Those of Kafka's keys that our clients have, among all keys of a worker or a connector.

    >>> known_options({"request.timeout.ms": "7000", "batch.size": "1"})
    {'request.timeout.ms': 7000}
    """
    found: dict[str, str | int] = {}
    for key, value in given.items():
        name = _RENAMED.get(key, key.replace(".", "_"))
        if is_java_security(key) or name in COMMON:
            whole = isinstance(COMMON.get(name), int) and not isinstance(COMMON.get(name), bool)
            found[key] = parse_type(key, value, "INT") if whole else value
    return found
