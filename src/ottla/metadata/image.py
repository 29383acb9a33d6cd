"""The cluster's metadata at one offset: an immutable image, shared by everyone who reads it.

Nobody changes an image; `delta.py` makes the next one from records. The maps are plain dicts for speed, typed as
`Mapping` because they are not to be written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

NO_LEADER: Final = -1
"""A partition's leader when it has none."""

NO_LEADER_CHANGE: Final = -2
"""The leader field of a PartitionChangeRecord that leaves the leader as it is."""

ENTITY_DEFAULT: Final = ""
"""A config resource name that stands for the cluster-wide default (of brokers)."""


class LeaderRecoveryState(IntEnum):
    """Whether a partition's leader came from a clean election."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """Where a node listens. `security_protocol` is Kafka's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """Levels of a feature, both ends included."""

    min: int
    max: int


class BrokerRegistration(msgspec.Struct, frozen=True):
    """A broker as it registered itself."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] = ()
    is_migrating_zk_broker: bool = False


class ControllerRegistration(msgspec.Struct, frozen=True):
    """A controller as it registered itself."""

    id: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False


class PartitionRegistration(msgspec.Struct, frozen=True):
    """A partition's assignment and leadership."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, replica: int) -> bytes:
        """The id of the log directory that this replica lies in."""
        return self.directories[self.replicas.index(replica)]


class TopicImage(msgspec.Struct, frozen=True):
    """A topic and its partitions."""

    id: bytes
    name: str
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage(msgspec.Struct, frozen=True):
    """All topics, by name and by id."""

    by_name: Mapping[str, TopicImage] = msgspec.field(default_factory=dict)
    by_id: Mapping[bytes, TopicImage] = msgspec.field(default_factory=dict)

    def partition(self, topic_id: bytes, index: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)


_NO_CONFIGS: Final[Mapping[str, str]] = {}


class ConfigurationsImage(msgspec.Struct, frozen=True):
    """What has been set dynamically, per resource. The key is (resource type, name)."""

    resources: Mapping[tuple[int, str], Mapping[str, str]] = msgspec.field(default_factory=dict)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.resources.get((resource_type, name), _NO_CONFIGS)


class ProducerIdsImage(msgspec.Struct, frozen=True):
    """The first producer id that no broker has been given yet; -1 before the first block."""

    next: int = -1


class AclEntry(NamedTuple):
    """An access control entry, its fields as Kafka numbers them."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


ClientQuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type ("user", "client-id", "ip") and name (None is the default entity), sorted by type."""


class ScramCredential(NamedTuple):
    """What is stored of a user's SCRAM password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(NamedTuple):
    """A delegation token without its secret, which is derived from the cluster's master key."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


class MetadataImage(msgspec.Struct, frozen=True):
    """Everything the metadata log says up to and including `offset`."""

    offset: int = -1
    epoch: int = -1
    features: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Finalized feature levels, `metadata.version` among them; a level of 0 is left out."""
    brokers: Mapping[int, BrokerRegistration] = msgspec.field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = msgspec.field(default_factory=dict)
    topics: TopicsImage = msgspec.field(default_factory=TopicsImage)
    configs: ConfigurationsImage = msgspec.field(default_factory=ConfigurationsImage)
    producer_ids: ProducerIdsImage = msgspec.field(default_factory=ProducerIdsImage)
    acls: Mapping[bytes, AclEntry] = msgspec.field(default_factory=dict)
    client_quotas: Mapping[ClientQuotaEntity, Mapping[str, float]] = msgspec.field(default_factory=dict)
    scram: Mapping[tuple[int, str], ScramCredential] = msgspec.field(default_factory=dict)
    """By (mechanism, user name); mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    tokens: Mapping[str, DelegationToken] = msgspec.field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """The finalized level of `metadata.version`; -1 when the log has not said."""
        return self.features.get("metadata.version", -1)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get("eligible.leader.replicas.version", 0) >= 1

    def same_metadata(self, other: MetadataImage) -> bool:
        """Equal in all but the place in the log."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in MetadataImage.__struct_fields__
            if name not in ("offset", "epoch")
        )


EMPTY_IMAGE: Final = MetadataImage()
