"""The configuration of the controller's decisions: this node's static settings and the image's dynamic ones.

The precedence is Kafka's: topic, then this broker, then the cluster-wide default, then the properties file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.credentials.secret import Secret
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.credentials.delegation_tokens import TokenKey

MIN_ISR_KEY: Final = "min.insync.replicas"
CORDONED_KEY: Final = "cordoned.log.dirs"
UNCLEAN_KEY: Final = "unclean.leader.election.enable"


class Settings:
    """The controller's view of configuration."""

    __slots__ = ("_current", "_dynamic_of_current", "cluster_id", "node_id", "static", "token_key")

    def __init__(self, static: BrokerConfig, cluster_id: str) -> None:
        self.node_id = static.node_id
        self.cluster_id = cluster_id
        self.static = static
        secret = static["delegation.token.secret.key"]
        self.token_key = _token_key(secret) if isinstance(secret, Secret) else None
        """The secrets of delegation tokens follow from it; None where there are none."""
        self._current = static
        self._dynamic_of_current: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    @property
    def num_partitions(self) -> int:
        return self.static.int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.static.int("default.replication.factor")

    @property
    def delete_topic_enable(self) -> bool:
        return self.static.bool("delete.topic.enable")

    @property
    def session_timeout_s(self) -> float:
        return self.static.int("broker.session.timeout.ms") / 1000

    @property
    def max_idle_s(self) -> float:
        """How long the metadata log may stay idle while other nodes follow it; 0 means forever."""
        return self.static.int("metadata.max.idle.interval.ms") / 1000

    @property
    def balance_interval_s(self) -> float:
        """How often leadership returns to preferred replicas; 0 means never."""
        if not self.static.bool("auto.leader.rebalance.enable"):
            return 0
        return self.static.int("leader.imbalance.check.interval.seconds")

    @property
    def token_max_lifetime_ms(self) -> int:
        return self.static.int("delegation.token.max.lifetime.ms")

    @property
    def token_expiry_ms(self) -> int:
        """How long a token lives without being renewed."""
        return self.static.int("delegation.token.expiry.time.ms")

    @property
    def token_sweep_interval_s(self) -> float:
        """How often expired tokens are removed; 0 where there are no tokens."""
        if self.token_key is None:
            return 0
        return self.static.int("delegation.token.expiry.check.interval.ms") / 1000

    @property
    def unclean_election_interval_s(self) -> float:
        return self.static.int("unclean.leader.election.interval.ms") / 1000

    @property
    def inter_broker_listener(self) -> str:
        return self.static.inter_broker_listener_name

    @property
    def static_min_insync_replicas(self) -> int:
        return self.static.int(MIN_ISR_KEY)

    def min_insync_replicas(self, image: MetadataImage, topic: str) -> int:
        value = self._dynamic(image, topic, MIN_ISR_KEY)
        return self.static_min_insync_replicas if value is None else int(value)

    def unclean_leader_election(self, image: MetadataImage, topic: str) -> bool:
        value = self._dynamic(image, topic, UNCLEAN_KEY)
        return self.static.bool(UNCLEAN_KEY) if value is None else value.strip().lower() == "true"

    def _dynamic(self, image: MetadataImage, topic: str, key: str) -> str | None:
        # Both keys have the same name for topics and for brokers.
        for type_, name in (
            (ConfigResourceType.TOPIC, topic),
            (ConfigResourceType.BROKER, str(self.node_id)),
            (ConfigResourceType.BROKER, ENTITY_DEFAULT),
        ):
            value = image.configs.of(type_, name).get(key)
            if value is not None:
                return value
        return None

    def current(self, image: MetadataImage) -> BrokerConfig:
        """The static settings, overridden by the image's dynamic broker configs."""
        dynamic = self.dynamic_broker_configs(image)
        # Cached until the dynamic part changes, because building it parses every key.
        if dynamic != self._dynamic_of_current:
            self._current = self.static.with_dynamic(*dynamic)
            self._dynamic_of_current = dynamic
        return self._current

    def dynamic_broker_configs(self, image: MetadataImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The dynamic configs of all brokers, and of this one."""
        return (
            image.configs.of(ConfigResourceType.BROKER, ENTITY_DEFAULT),
            image.configs.of(ConfigResourceType.BROKER, str(self.node_id)),
        )


def _token_key(secret: Secret) -> TokenKey:
    # Loaded where a cluster has tokens.
    from ottla.credentials.delegation_tokens import TokenKey

    return TokenKey(secret)
