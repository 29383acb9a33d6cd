"""The cluster's metadata at one offset: an immutable image that all readers share.

An image never changes; `delta.py` makes the next one from records. The maps are plain dicts for speed, typed as
`Mapping` because they are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from ottla.ids import BrokerId, ProducerId, TopicName

NO_LEADER: Final = BrokerId(-1)
"""A partition's leader when it has none."""

NO_LEADER_CHANGE: Final = BrokerId(-2)
"""The leader field of a PartitionChangeRecord that does not change the leader."""

ENTITY_DEFAULT: Final = ""
"""A config resource name that stands for the cluster-wide default (of brokers)."""


class LeaderRecoveryState(IntEnum):
    """Whether a partition's leader came from a clean election."""

    RECOVERED = 0
    RECOVERING = 1


class ListenerEndpoint(NamedTuple):
    """A listener of a node. `security_protocol` is Kafka's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

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

    id: BrokerId
    epoch: int
    incarnation_id: bytes
    listeners: Mapping[str, ListenerEndpoint]
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
    listeners: Mapping[str, ListenerEndpoint]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False


class PartitionRegistration(msgspec.Struct, frozen=True):
    """A partition's assignment and leadership."""

    replicas: tuple[BrokerId, ...]
    directories: tuple[bytes, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, replica: int) -> bytes:
        """The id of this replica's log directory."""
        return self.directories[self.replicas.index(replica)]


class TopicImage(msgspec.Struct, frozen=True):
    """A topic and its partitions."""

    id: bytes
    name: TopicName
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage(msgspec.Struct, frozen=True):
    """All topics, by name and by id."""

    by_name: Mapping[TopicName, TopicImage] = msgspec.field(default_factory=dict)
    by_id: Mapping[bytes, TopicImage] = msgspec.field(default_factory=dict)

    def partition(self, topic_id: bytes, index: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)


_NO_CONFIGS: Final[Mapping[str, str]] = {}


class ConfigurationsImage(msgspec.Struct, frozen=True):
    """Dynamic configs per resource. The key is (resource type, name)."""

    resources: Mapping[tuple[int, str], Mapping[str, str]] = msgspec.field(default_factory=dict)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.resources.get((resource_type, name), _NO_CONFIGS)


class ProducerIdsImage(msgspec.Struct, frozen=True):
    """The first producer id that is not allocated yet; -1 before the first block."""

    next: ProducerId = ProducerId(-1)


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
    """The stored part of a user's SCRAM password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


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
    """The content of the metadata log up to and including `offset`."""

    offset: int = -1
    epoch: int = -1
    features: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Finalized feature levels, `metadata.version` among them; a level of 0 is left out."""
    brokers: Mapping[BrokerId, BrokerRegistration] = msgspec.field(default_factory=dict)
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
        """The finalized level of `metadata.version`; -1 when the log has none."""
        return self.features.get("metadata.version", -1)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get("eligible.leader.replicas.version", 0) >= 1

    def same_metadata(self, other: MetadataImage) -> bool:
        """Equal except for the offset and epoch."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in MetadataImage.__struct_fields__
            if name not in ("offset", "epoch")
        )


EMPTY_IMAGE: Final = MetadataImage()
