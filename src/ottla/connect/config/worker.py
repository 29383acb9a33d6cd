"""A worker's configuration: Kafka's keys, the few of Ottla's, and what follows from them."""

from __future__ import annotations

import difflib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues, kafka_keys
from ottla.connect.failures import ConfigInvalid

_OWN: Final = ConfigDef(
    [
        ConfigKey("ottla.spark.master", default="none"),
        ConfigKey("ottla.rest.logins.file", default=None),
        ConfigKey("ottla.resident.tasks", "INT", None, valid="[-1,...]"),
        ConfigKey("ottla.inline.max.bytes", "LONG", 1 << 20, valid="[1,...]"),
        ConfigKey("ottla.cycle.max.records", "INT", 50_000, valid="[1,...]"),
        ConfigKey("ottla.cycle.max.bytes", "LONG", 16 << 20, valid="[1,...]"),
        ConfigKey("ottla.poll.interval.ms", "LONG", 200, valid="[1,...]"),
        ConfigKey("ottla.restart.backoff.ms", "LONG", 1_000, valid="[1,...]"),
        ConfigKey("ottla.restart.backoff.max.ms", "LONG", 60_000, valid="[1,...]"),
        ConfigKey("connector.client.config.override.allowlist", "LIST", default=()),
    ]
)
_PREFIXES: Final = (
    *("producer.", "consumer.", "admin.", "ottla.spark.conf.", "config.providers."),
    *("key.converter.", "value.converter.", "header.converter.", "listeners.https."),
    *("offset.storage.", "config.storage.", "status.storage."),
    # MirrorMaker 2 gives them to its workers, too. Each connector has its own.
    *("replication.policy.", "forwarding.admin."),
)
_STANDALONE_TOO: Final = (
    *("client.id", "exactly.once.source.support", "security.protocol", "request.timeout.ms"),
    *("retry.backoff.ms", "retry.backoff.max.ms", "metadata.max.age.ms", "connections.max.idle.ms"),
)
DEFAULT_LISTENER: Final = "http://localhost:8083"
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to serve REST on."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The values in force; `originals` are the keys as they were given."""

    originals: Mapping[str, str]
    values: ConfigValues
    listeners: tuple[Listener, ...] = field(default_factory=tuple)
    admin_listeners: tuple[Listener, ...] | None = None
    """Where /admin is served: with everything else (None), nowhere (empty), or on addresses of its own."""

    @property
    def distributed(self) -> bool:
        """Whether the worker is one of a group."""
        return "group.id" in self.originals

    @property
    def group_id(self) -> str:
        """The group of the cluster; standalone workers are called by their client id."""
        return str(self.values["group.id"]) if self.distributed else f"connect-{self.client_id}"

    @property
    def client_id(self) -> str:
        """The client id, "standalone" unless one is given."""
        return str(self.values.get("client.id") or "standalone")

    @property
    def bootstrap_servers(self) -> str:
        """The brokers."""
        return ",".join(self.values["bootstrap.servers"])

    @property
    def offset_file(self) -> str | None:
        """Kafka's file of offsets, if one is given."""
        return self.originals.get("offset.storage.file.filename")

    @property
    def offsets_topic(self) -> str:
        """The topic of source offsets."""
        if self.distributed:
            return str(self.values["offset.storage.topic"])
        return f"connect-offsets-{self.client_id}"

    @property
    def exactly_once(self) -> bool:
        """Whether sources write in transactions, unless the offsets are in a file."""
        given = str(self.values.get("exactly.once.source.support") or "enabled").lower()
        return self.offset_file is None and given == "enabled"

    def address(self, port: int) -> str:
        """The address that statuses name: advertised, else that of the first listener, which is bound to `port`."""
        host = self.values.get("rest.advertised.host.name") or self.listeners[0].host or _own_name()
        return f"{host}:{self.values.get('rest.advertised.port') or port}"

    @property
    def advertised_scheme(self) -> str:
        """The scheme under which other workers reach this one."""
        return str(self.values.get("rest.advertised.listener") or self.listeners[0].scheme).lower()

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The keys under a prefix, without it."""
        size = len(prefix)
        return {key[size:]: value for key, value in self.originals.items() if key.startswith(prefix)}


def _own_name() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def worker_config(given: Mapping[str, str], *, from_file: bool = True) -> WorkerConfig:
    """The configuration of a worker; ConfigInvalid names the first wrong key."""
    props = dict(given)
    props.setdefault("bootstrap.servers", "localhost:9092")
    props.setdefault("key.converter", _JSON)
    props.setdefault("value.converter", _JSON)
    if not from_file:
        props.setdefault("listeners", DEFAULT_LISTENER)
    distributed = "group.id" in props
    definition = kafka_keys("worker") | kafka_keys("distributed") | _OWN
    known = {*definition.keys, *kafka_keys("standalone").keys}
    for key in props:
        if key not in known and not key.startswith(_PREFIXES):
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigInvalid(f"a worker has no key '{key}'{hint}")
    if not distributed:
        base = kafka_keys("worker") | _OWN
        extra = [one for one in kafka_keys("distributed").keys.values() if one.name in _STANDALONE_TOO]
        definition = base | ConfigDef(extra)
    values = definition.parse(props)
    if "exactly.once.source.support" not in props:
        values["exactly.once.source.support"] = "enabled"
    if "scheduled.rebalance.max.delay.ms" not in props:
        values["scheduled.rebalance.max.delay.ms"] = 0
    listeners = tuple(_listener(one) for one in values["listeners"])
    if not listeners:
        raise ConfigInvalid("listeners must name at least one address, like http://localhost:8083")
    admin = values.get("admin.listeners")
    apart = None if admin is None else tuple(_listener(one, "admin.listeners") for one in admin if one)
    return WorkerConfig(props, values, listeners, apart)


def _listener(text: str, key: str = "listeners") -> Listener:
    scheme, separator, address = text.partition("://")
    host, _, port = address.rstrip("/").rpartition(":")
    if not separator or scheme.lower() not in ("http", "https") or not port.isdigit() or int(port) > 65_535:
        raise ConfigInvalid(
            f"Invalid value {text} for configuration {key}: an address looks like http://localhost:8083"
        )
    return Listener(scheme.lower(), host.strip("[]"), int(port))
