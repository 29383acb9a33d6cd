"""Changes to an image: replay records here, `apply` returns the next image, and `changed_*` list the differences.

Each map is copied shallowly when the first record changes it; everything else is shared with the old image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, ProducerId, TopicName
from ottla.metadata.cluster import (
    broker_from_record,
    changed_broker,
    controller_from_record,
)
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.image import (
    AclEntry,
    BrokerRegistration,
    ClientQuotaEntity,
    ConfigurationsImage,
    ControllerRegistration,
    DelegationToken,
    MetadataImage,
    PartitionRegistration,
    ProducerIdsImage,
    ScramCredential,
    TopicImage,
    TopicsImage,
)
from ottla.metadata.partitions import merge_partition, partition_from_record, without_elr
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.wire import messages
    from ottla.wire.classes import WireMessage

K = TypeVar("K")
V = TypeVar("V")


class TopicDelta:
    """A topic that was created or changed."""

    __slots__ = ("id", "is_new", "name", "partition_changes", "partitions")

    def __init__(
        self, id: bytes, name: TopicName, partitions: dict[int, PartitionRegistration], is_new: bool
    ) -> None:
        self.id = id
        self.name = name
        self.is_new = is_new
        self.partitions = partitions
        """All partitions as they are now."""
        self.partition_changes: dict[int, PartitionRegistration] = {}
        """The partitions that were created or changed, as they are now."""

    def put(self, index: int, partition: PartitionRegistration) -> None:
        self.partitions[index] = partition
        self.partition_changes[index] = partition


class MetadataDelta:
    """Changes on top of an image. Give it records in log order, then `apply` once."""

    __slots__ = (
        "_acls",
        "_brokers",
        "_by_id",
        "_by_name",
        "_configs",
        "_controllers",
        "_features",
        "_producer_ids",
        "_quotas",
        "_scram",
        "_tokens",
        "changed_brokers",
        "changed_configs",
        "changed_controllers",
        "changed_features",
        "changed_topics",
        "deleted_topics",
        "image",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.changed_topics: dict[bytes, TopicDelta] = {}
        """Topics created or changed, by id."""
        self.deleted_topics: dict[bytes, TopicImage] = {}
        """Deleted topics of the old image, by id, as they were."""
        self.changed_configs: set[tuple[int, str]] = set()
        """(resource type, name) of resources whose configs were set or removed."""
        self.changed_brokers: set[BrokerId] = set()
        """Brokers that were registered, changed or unregistered (then not in the new image)."""
        self.changed_controllers: set[int] = set()
        self.changed_features: set[str] = set()
        self._features: dict[str, int] | None = None
        self._brokers: dict[BrokerId, BrokerRegistration] | None = None
        self._controllers: dict[int, ControllerRegistration] | None = None
        self._by_name: dict[TopicName, TopicImage] | None = None
        self._by_id: dict[bytes, TopicImage] | None = None
        self._configs: dict[tuple[int, str], Mapping[str, str]] | None = None
        self._producer_ids: ProducerIdsImage | None = None
        self._acls: dict[bytes, AclEntry] | None = None
        self._quotas: dict[ClientQuotaEntity, Mapping[str, float]] | None = None
        self._scram: dict[tuple[int, str], ScramCredential] | None = None
        self._tokens: dict[str, DelegationToken] | None = None

    @classmethod
    def between(cls, old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """The differences of two images, for publishers that missed the records. Do not `apply` this delta."""
        delta = cls(old)
        for topic_id, topic in new.topics.by_id.items():
            before = old.topics.by_id.get(topic_id)
            if before is topic:
                continue
            change = TopicDelta(topic_id, topic.name, dict(topic.partitions), is_new=before is None)
            known = {} if before is None else before.partitions
            change.partition_changes = {i: p for i, p in topic.partitions.items() if known.get(i) != p}
            if change.partition_changes or change.is_new:
                delta.changed_topics[topic_id] = change
        delta.deleted_topics = {i: t for i, t in old.topics.by_id.items() if i not in new.topics.by_id}
        delta.changed_configs = _differing(old.configs.resources, new.configs.resources)
        delta.changed_brokers = _differing(old.brokers, new.brokers)
        delta.changed_controllers = _differing(old.controllers, new.controllers)
        delta.changed_features = _differing(old.features, new.features)
        return delta

    def replay(self, message: WireMessage) -> None:
        """Apply one record. Raises ApiException where it contradicts the image."""
        try:
            handler = _REPLAY[message.NAME]
        except KeyError:
            raise ApiException(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{message.NAME} is not a record that changes the metadata image",
            ) from None
        handler(self, message)

    def replay_all(self, records: Iterable[WireMessage]) -> None:
        for record in records:
            self.replay(record)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """The image with all replayed records in it. The delta must not be used afterwards."""
        old = self.image
        topics = old.topics
        if self._by_id is not None and self._by_name is not None:
            for topic_id, change in self.changed_topics.items():
                topic = TopicImage(topic_id, change.name, change.partitions)
                self._by_id[topic_id] = topic
                self._by_name[change.name] = topic
            topics = TopicsImage(self._by_name, self._by_id)
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            features=_or(self._features, old.features),
            brokers=_or(self._brokers, old.brokers),
            controllers=_or(self._controllers, old.controllers),
            topics=topics,
            configs=old.configs if self._configs is None else ConfigurationsImage(self._configs),
            producer_ids=_or(self._producer_ids, old.producer_ids),
            acls=_or(self._acls, old.acls),
            client_quotas=_or(self._quotas, old.client_quotas),
            scram=_or(self._scram, old.scram),
            tokens=_or(self._tokens, old.tokens),
        )

    # Topics and partitions

    def _topics(self) -> tuple[dict[TopicName, TopicImage], dict[bytes, TopicImage]]:
        if self._by_name is None or self._by_id is None:
            self._by_name = dict(self.image.topics.by_name)
            self._by_id = dict(self.image.topics.by_id)
        return self._by_name, self._by_id

    def _topic(self, topic_id: bytes) -> TopicDelta:
        change = self.changed_topics.get(topic_id)
        if change is None:
            _, by_id = self._topics()
            topic = by_id.get(topic_id)
            if topic is None:
                raise ApiException(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"a metadata record names topic id {topic_id.hex()}, which does not exist",
                )
            change = TopicDelta(topic_id, topic.name, dict(topic.partitions), is_new=False)
            self.changed_topics[topic_id] = change
        return change

    def _topic_record(self, r: messages.TopicRecord) -> None:
        by_name, by_id = self._topics()
        old = by_name.get(r.name)
        if old is not None and old.id != r.topic_id:
            raise ApiException(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {r.name} already exists with another id"
            )
        topic = TopicImage(r.topic_id, r.name, {})
        by_name[r.name] = topic
        by_id[r.topic_id] = topic
        self.changed_topics[r.topic_id] = TopicDelta(r.topic_id, r.name, {}, is_new=True)

    def _remove_topic(self, r: messages.RemoveTopicRecord) -> None:
        by_name, by_id = self._topics()
        topic = by_id.pop(r.topic_id, None)
        if topic is None:
            raise ApiException(
                ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {r.topic_id.hex()} to be removed does not exist"
            )
        by_name.pop(topic.name, None)
        self.changed_topics.pop(r.topic_id, None)
        before = self.image.topics.by_id.get(r.topic_id)
        if before is not None:
            self.deleted_topics[r.topic_id] = before
        resource = (int(ConfigResourceType.TOPIC), topic.name)
        if resource in (self.image.configs.resources if self._configs is None else self._configs):
            self._config_map().pop(resource)
            self.changed_configs.add(resource)

    def _partition_record(self, r: messages.PartitionRecord) -> None:
        self._topic(r.topic_id).put(r.partition_id, partition_from_record(r))

    def _partition_change(self, r: messages.PartitionChangeRecord) -> None:
        topic = self._topic(r.topic_id)
        old = topic.partitions.get(r.partition_id)
        if old is None:
            raise ApiException(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a PartitionChangeRecord names {topic.name}-{r.partition_id}, which does not exist",
            )
        topic.put(r.partition_id, merge_partition(old, r))

    def _clear_elr(self, r: messages.ClearElrRecord) -> None:
        by_name, by_id = self._topics()
        if r.topic_name:
            if r.topic_name not in by_name:
                raise ApiException(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"a ClearElrRecord names {r.topic_name}, which does not exist",
                )
            ids = [by_name[r.topic_name].id]
        else:
            ids = list(by_id)
        for topic_id in ids:
            change = self.changed_topics.get(topic_id)
            partitions = by_id[topic_id].partitions if change is None else change.partitions
            for index, partition in list(partitions.items()):
                if partition.elr or partition.last_known_elr:
                    self._topic(topic_id).put(index, without_elr(partition))

    # Brokers and controllers

    def _broker_map(self) -> dict[BrokerId, BrokerRegistration]:
        if self._brokers is None:
            self._brokers = dict(self.image.brokers)
        return self._brokers

    def _broker(self, broker_id: BrokerId, epoch: int) -> BrokerRegistration:
        broker = self._broker_map().get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ApiException(
                ErrorCode.STALE_BROKER_EPOCH,
                f"a metadata record changes broker {broker_id} of epoch {epoch}, which is "
                + ("not registered" if broker is None else f"now at epoch {broker.epoch}"),
            )
        return broker

    def _set_broker(self, broker: BrokerRegistration) -> None:
        self._broker_map()[broker.id] = broker
        self.changed_brokers.add(broker.id)

    def _register_broker(self, r: messages.RegisterBrokerRecord) -> None:
        self._set_broker(broker_from_record(r))

    def _unregister_broker(self, r: messages.UnregisterBrokerRecord) -> None:
        self._broker(r.broker_id, r.broker_epoch)
        del self._broker_map()[r.broker_id]
        self.changed_brokers.add(r.broker_id)

    def _fence(self, r: messages.FenceBrokerRecord) -> None:
        self._set_broker(replace(self._broker(r.id, r.epoch), fenced=True))

    def _unfence(self, r: messages.UnfenceBrokerRecord) -> None:
        self._set_broker(replace(self._broker(r.id, r.epoch), fenced=False))

    def _change_broker(self, r: messages.BrokerRegistrationChangeRecord) -> None:
        self._set_broker(changed_broker(self._broker(r.broker_id, r.broker_epoch), r))

    def _register_controller(self, r: messages.RegisterControllerRecord) -> None:
        if self._controllers is None:
            self._controllers = dict(self.image.controllers)
        self._controllers[r.controller_id] = controller_from_record(r)
        self.changed_controllers.add(r.controller_id)

    # Everything else

    def _feature(self, r: messages.FeatureLevelRecord) -> None:
        if r.name == KRAFT_VERSION:
            # The control records hold the level of kraft.version; early releases wrote it here by mistake.
            return
        if self._features is None:
            self._features = dict(self.image.features)
        if r.feature_level == 0:
            self._features.pop(r.name, None)
        else:
            self._features[r.name] = r.feature_level
        self.changed_features.add(r.name)

    def _config_map(self) -> dict[tuple[int, str], Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.image.configs.resources)
        return self._configs

    def _config(self, r: messages.ConfigRecord) -> None:
        resource = (r.resource_type, r.resource_name)
        configs = self._config_map()
        values = dict(configs.get(resource, ()))
        if r.value is None:
            values.pop(r.name, None)
        else:
            values[r.name] = r.value
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self.changed_configs.add(resource)

    def _producer_id(self, r: messages.ProducerIdsRecord) -> None:
        self._producer_ids = ProducerIdsImage(ProducerId(r.next_producer_id))

    def _quota(self, r: messages.ClientQuotaRecord) -> None:
        if self._quotas is None:
            self._quotas = dict(self.image.client_quotas)
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in r.entity), key=itemgetter(0)))
        values = dict(self._quotas.get(entity, ()))
        if r.remove:
            values.pop(r.key, None)
        else:
            values[r.key] = r.value
        if values:
            self._quotas[entity] = values
        else:
            self._quotas.pop(entity, None)

    def _acl_map(self) -> dict[bytes, AclEntry]:
        if self._acls is None:
            self._acls = dict(self.image.acls)
        return self._acls

    def _acl(self, r: messages.AccessControlEntryRecord) -> None:
        self._acl_map()[r.id] = AclEntry(
            r.resource_type,
            r.resource_name,
            r.pattern_type,
            r.principal,
            r.host,
            r.operation,
            r.permission_type,
        )

    def _remove_acl(self, r: messages.RemoveAccessControlEntryRecord) -> None:
        if self._acl_map().pop(r.id, None) is None:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"the ACL {r.id.hex()} to be removed does not exist"
            )

    def _scram_map(self) -> dict[tuple[int, str], ScramCredential]:
        if self._scram is None:
            self._scram = dict(self.image.scram)
        return self._scram

    def _scram_record(self, r: messages.UserScramCredentialRecord) -> None:
        self._scram_map()[r.mechanism, r.name] = ScramCredential(
            r.salt, r.stored_key, r.server_key, r.iterations
        )

    def _remove_scram(self, r: messages.RemoveUserScramCredentialRecord) -> None:
        self._scram_map().pop((r.mechanism, r.name), None)

    def _token_map(self) -> dict[str, DelegationToken]:
        if self._tokens is None:
            self._tokens = dict(self.image.tokens)
        return self._tokens

    def _token(self, r: messages.DelegationTokenRecord) -> None:
        self._token_map()[r.token_id] = DelegationToken(
            r.owner,
            r.requester,
            tuple(r.renewers),
            r.issue_timestamp,
            r.max_timestamp,
            r.expiration_timestamp,
            r.token_id,
        )

    def _remove_token(self, r: messages.RemoveDelegationTokenRecord) -> None:
        self._token_map().pop(r.token_id, None)

    def _nothing(self, r: WireMessage) -> None:
        """NoOpRecord has no content; ZkMigrationStateRecord is from before Kafka 4 and has no effect any more."""


def _differing(old: Mapping[K, object], new: Mapping[K, object]) -> set[K]:
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _or(new: V | None, old: V) -> V:
    return old if new is None else new


_REPLAY: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    "RegisterBrokerRecord": MetadataDelta._register_broker,
    "UnregisterBrokerRecord": MetadataDelta._unregister_broker,
    "TopicRecord": MetadataDelta._topic_record,
    "PartitionRecord": MetadataDelta._partition_record,
    "ConfigRecord": MetadataDelta._config,
    "PartitionChangeRecord": MetadataDelta._partition_change,
    "FenceBrokerRecord": MetadataDelta._fence,
    "UnfenceBrokerRecord": MetadataDelta._unfence,
    "RemoveTopicRecord": MetadataDelta._remove_topic,
    "DelegationTokenRecord": MetadataDelta._token,
    "UserScramCredentialRecord": MetadataDelta._scram_record,
    "FeatureLevelRecord": MetadataDelta._feature,
    "ClientQuotaRecord": MetadataDelta._quota,
    "ProducerIdsRecord": MetadataDelta._producer_id,
    "BrokerRegistrationChangeRecord": MetadataDelta._change_broker,
    "AccessControlEntryRecord": MetadataDelta._acl,
    "RemoveAccessControlEntryRecord": MetadataDelta._remove_acl,
    "NoOpRecord": MetadataDelta._nothing,
    "ZkMigrationStateRecord": MetadataDelta._nothing,
    "RemoveUserScramCredentialRecord": MetadataDelta._remove_scram,
    "RemoveDelegationTokenRecord": MetadataDelta._remove_token,
    "RegisterControllerRecord": MetadataDelta._register_controller,
    "ClearElrRecord": MetadataDelta._clear_elr,
}
"""The handler of each record type. `publisher.py` and the controller resolve transactions (Begin, End, Abort)."""
