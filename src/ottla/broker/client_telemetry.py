"""Clients that send their metrics (KIP-714): which subscriptions fit them, and when they may send.

State and checks only. `ottla.metrics.client_metrics` reads what they send, and passes it on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.records.codecs import Compression
from ottla.wire.enums import ConfigResourceType
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from ottla.metadata.image import ConfigurationsImage, MetadataImage

_logger = logging.getLogger(__name__)

MAX_INSTANCES: Final = 10_000
DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"
ACCEPTED_CODECS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_RETRY_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Client(msgspec.Struct, frozen=True):
    """Who sends metrics: one instance of a client, as its connection and its requests name it."""

    instance_id: bytes
    client_id: str
    software_name: str
    software_version: str
    host: str
    port: str
    principal: str

    def attributes(self) -> Mapping[str, str]:
        """What the `match` of a subscription looks at."""
        return {
            "client_instance_id": uuid_to_str(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.host,
            "client_source_port": self.port,
        }


class Subscription(msgspec.Struct, frozen=True):
    """A `client-metrics` resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Subscription:
        """From its settings, which the controller has checked."""
        import re2  # type: ignore[import-untyped]  # loaded with the first subscription

        options = re2.Options()
        options.log_errors = False
        patterns = {}
        for pair in _listed(configs.get("match", "")):
            key, _, pattern = pair.partition("=")
            try:
                patterns[key.strip()] = re2.compile(pattern.strip(), options)
            except re2.error as error:
                # The controller takes what Java does; this engine's time is bounded, and it knows no lookaheads.
                _logger.warning("A client-metrics subscription fits nobody: its match %s: %s", pair, error)
                patterns[key.strip()] = re2.compile("[^\\x00-\\x{10FFFF}]", options)
        metrics = tuple(_listed(configs.get("metrics", "")))
        return cls(metrics, int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)), patterns)

    def fits(self, attributes: Mapping[str, str]) -> bool:
        """Whether the client is one of those that the subscription is for."""
        return all(pattern.fullmatch(attributes.get(key, "")) for key, pattern in self.patterns.items())


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass(slots=True)
class Instance:
    """What is known of one client instance."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    version: object
    """The configurations that its subscription was made from."""
    last_get_ms: int = -1
    last_push_ms: int = -1
    last_error: ErrorCode = ErrorCode.NONE
    terminating: bool = False


class ClientTelemetry:
    """The client instances of one broker: at most 10,000, of which the longest silent one goes first."""

    __slots__ = ("_instances", "_subscriptions", "pushes", "receive")

    def __init__(self) -> None:
        self._instances: dict[bytes, Instance] = {}
        self._subscriptions: tuple[ConfigurationsImage | None, tuple[Subscription, ...]] = (None, ())
        self.receive: Callable[[Client, bytes], None] | None = None
        """Takes the unpacked metrics of a client, in a thread. Raises ValueError if they cannot be read."""
        self.pushes = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, client: Client, image: MetadataImage, now_ms: int) -> Instance:
        """What this client should send. Raises THROTTLING_QUOTA_EXCEEDED if it asks too often."""
        instance = self._instance(client, image)
        last = max(instance.last_get_ms, instance.last_push_ms)
        if last >= 0 and now_ms - last < instance.interval_ms and instance.last_error not in _RETRY_AT_ONCE:
            raise ApiException(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The next request is due {instance.interval_ms} ms after the last one",
            )
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def forget(self, instance_id: bytes) -> None:
        """The client has disconnected."""
        self._instances.pop(instance_id, None)

    def check_push(
        self,
        client: Client,
        image: MetadataImage,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        codec: int,
        size: int,
        max_bytes: int,
    ) -> None:
        """Raise unless the client may send this now."""
        instance = self._instance(client, image)
        try:
            self._check(instance, now_ms, subscription_id, codec, size, max_bytes, terminating=terminating)
        except ApiException as error:
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE
        self.pushes += 1
        if terminating:
            instance.terminating = True

    def pushed(self, client: Client, code: ErrorCode) -> None:
        """What became of a push."""
        instance = self._instances.get(client.instance_id)
        if instance is not None:
            instance.last_error = code

    def _check(
        self,
        instance: Instance,
        now_ms: int,
        subscription_id: int,
        codec: int,
        size: int,
        max_bytes: int,
        *,
        terminating: bool,
    ) -> None:
        if instance.terminating:
            raise ApiException(ErrorCode.INVALID_REQUEST, "The client has announced its last push already")
        first_after_get = instance.last_get_ms > instance.last_push_ms
        last = max(instance.last_get_ms, instance.last_push_ms)
        early = not first_after_get and last >= 0 and now_ms - last < instance.interval_ms
        if early and not terminating:
            raise ApiException(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The next push is due {instance.interval_ms} ms after the last one",
            )
        instance.last_push_ms = now_ms
        if subscription_id != instance.subscription_id:
            raise ApiException(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "The subscriptions have changed: ask for them again"
            )
        if codec != Compression.NONE and codec not in ACCEPTED_CODECS:
            raise ApiException(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression type {codec}"
            )
        if size > max_bytes:
            raise ApiException(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"The metrics take {size} bytes, more than the {max_bytes} of telemetry.max.bytes",
            )

    def _instance(self, client: Client, image: MetadataImage) -> Instance:
        known = self._instances.pop(client.instance_id, None)
        if known is None or known.version is not image.configs:
            fresh = self._make(client, image)
            if known is not None and known.subscription_id == fresh.subscription_id:
                known.version = image.configs
            else:
                known = fresh
            while len(self._instances) >= MAX_INSTANCES:
                del self._instances[next(iter(self._instances))]
        self._instances[client.instance_id] = known
        return known

    def _make(self, client: Client, image: MetadataImage) -> Instance:
        attributes = client.attributes()
        fitting = [each for each in self._current(image) if each.fits(attributes)]
        wanted = dict.fromkeys(name for each in fitting for name in each.metrics)
        metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(wanted)
        interval_ms = min((each.interval_ms for each in fitting), default=DEFAULT_INTERVAL_MS)
        text = f"{sorted(metrics)} {interval_ms}".encode() + client.instance_id
        return Instance(metrics, interval_ms, crc32(text) & 0x7FFFFFFF, image.configs)

    def _current(self, image: MetadataImage) -> tuple[Subscription, ...]:
        configs = image.configs
        if self._subscriptions[0] is not configs:
            found = tuple(
                Subscription.of(settings)
                for (kind, _), settings in configs.resources.items()
                if kind == ConfigResourceType.CLIENT_METRICS
            )
            self._subscriptions = configs, found
        return self._subscriptions[1]
