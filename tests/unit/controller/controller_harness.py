"""A small cluster in memory for the controller's tests: images made by replay, and a log that commits on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import fence_broker
from ottla.controller.controller import Controller
from ottla.controller.replay import ReplayState, replay
from ottla.controller.settings import Settings
from ottla.errors import ApiException
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from ottla.raft.types import CommittedBatch
from ottla.wire.messages import (
    BrokerRegistrationRequest,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def uuid(number: int) -> bytes:
    return (1_000 + number).to_bytes(16)


def settings_with(**static: str) -> Settings:
    overrides = {key.replace("_", "."): value for key, value in static.items()}
    return Settings(BrokerConfig.single_node(overrides), CLUSTER_ID)


def replayed(image: MetadataImage, records: Sequence[Any]) -> MetadataImage:
    """The image after these records."""
    return replay(ReplayState(image), records, image.offset + len(records), 1).image


def broker_record(
    broker_id: int, *, rack: str | None = None, fenced: bool = False, directories: int = 1
) -> Any:
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=100 + broker_id,
        incarnation_id=uuid(broker_id),
        rack=rack,
        fenced=fenced,
        log_dirs=[uuid(10_000 + broker_id * 10 + n) for n in range(directories)],
    )
    record.features = [
        RegisterBrokerRecord.BrokerFeature(
            name=name, min_supported_version=levels.min, max_supported_version=levels.max
        )
        for name, levels in SUPPORTED_FEATURES.items()
    ]
    return record


def image_with_brokers(*broker_ids: int, elr: bool = True) -> MetadataImage:
    """A cluster at the newest feature levels with these unfenced brokers."""
    records = bootstrap_records(overrides=None if elr else {"eligible.leader.replicas.version": 0})
    if elr:
        records.append(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"))
    return replayed(EMPTY_IMAGE, [*records, *(broker_record(broker_id) for broker_id in broker_ids)])


def registration(broker_id: int = 1, *, incarnation: int = 1, previous_epoch: int = -1) -> Any:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid(incarnation),
        rack=None,
        log_dirs=[uuid(10_000 + broker_id * 10)],
        previous_broker_epoch=previous_epoch,
    )
    request.listeners = [
        BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)
    ]
    request.features = [
        BrokerRegistrationRequest.Feature(
            name=name, min_supported_version=levels.min, max_supported_version=levels.max
        )
        for name, levels in SUPPORTED_FEATURES.items()
    ]
    return request


def committed(base_offset: int, epoch: int, records: Sequence[Any]) -> CommittedBatch:
    return CommittedBatch(base_offset, base_offset + len(records) - 1, epoch, 0, 0, records)


class FakeLog:
    """The metadata log of a quorum of one; nothing is committed before `commit`."""

    def __init__(self) -> None:
        self.leader_epoch = 1
        self.batches: list[tuple[int, list[Any]]] = []
        self.log_end_offset = 0
        self.committed = 0
        self.listener: Controller | None = None
        self.refuse: ApiException | None = None

    def append(self, records: Sequence[Any]) -> int:
        if self.refuse is not None:
            raise self.refuse
        self.batches.append((self.log_end_offset, list(records)))
        self.log_end_offset += len(records)
        return self.log_end_offset - 1

    def commit(self) -> None:
        """Commit all that is there, and what is appended because of it."""
        assert self.listener is not None
        while self.committed < len(self.batches):
            base_offset, records = self.batches[self.committed]
            self.committed += 1
            self.listener.handle_commit([committed(base_offset, self.leader_epoch, records)])

    @property
    def records(self) -> list[Any]:
        return [record for _, records in self.batches for record in records]


class Answers:
    """What became of requests, in order."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.errors: list[ApiException] = []

    def done(self, response: Any) -> None:
        self.responses.append(response)

    def failed(self, error: ApiException) -> None:
        self.errors.append(error)


TOPIC_ID = uuid(77)


def with_partitions(image: MetadataImage, *replicas: Sequence[int], name: str = "t") -> MetadataImage:
    """The image with a topic of these partitions, each led by its first replica with all of them in sync."""
    records: list[Any] = [TopicRecord(name=name, topic_id=TOPIC_ID)]
    records += [
        PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=index,
            replicas=list(brokers),
            isr=list(brokers),
            leader=brokers[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[image.brokers[broker].directories[0] for broker in brokers],
        )
        for index, brokers in enumerate(replicas)
    ]
    return replayed(image, records)


def set_config(image: MetadataImage, key: str, value: str, topic: str = "t") -> MetadataImage:
    return replayed(image, [ConfigRecord(resource_type=2, resource_name=topic, name=key, value=value)])


def changed(image: MetadataImage, index: int = 0, **fields: Any) -> MetadataImage:
    """The image after a PartitionChangeRecord with these fields."""
    return replayed(image, [PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=index, **fields)])


def fenced(image: MetadataImage, *broker_ids: int) -> MetadataImage:
    """The image after these brokers were fenced, one after the other."""
    for broker_id in broker_ids:
        result = fence_broker(image, settings_with(), broker_id, image.brokers[broker_id].epoch)
        image = replayed(image, result.records)
    return image


def the_partition(image: MetadataImage, index: int = 0, name: str = "t") -> PartitionRegistration:
    return image.topics.by_name[name].partitions[index]
