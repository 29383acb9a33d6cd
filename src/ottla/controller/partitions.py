"""Changes of leaders and in-sync replicas when a broker joins or leaves, or one of its directories fails.

Pure functions on the image. `brokers.py` calls them; `partition_change.py` computes the change of one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from ottla.controller.cluster import is_active
from ottla.controller.partition_change import Election, PartitionId, PartitionRules, Target, change_partition
from ottla.controller.settings import Settings
from ottla.ids import BrokerId
from ottla.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.wire.messages import PartitionChangeRecord

MIGRATING_DIRECTORY: Final = bytes(16)
"""The directory id of replicas from before directories had ids."""
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
"""The broker chooses one of its directories and reports it later."""
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
"""The replica was in a directory that is lost."""


def is_online_directory(broker: BrokerRegistration | None, directory: bytes) -> bool:
    """Whether a replica in this directory of the broker can serve."""
    if broker is None or directory == LOST_DIRECTORY:
        return False
    if directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY) or not broker.directories:
        return True
    return directory in broker.directories


def default_directory(broker: BrokerRegistration | None) -> bytes:
    """The recorded directory of a new replica on this broker."""
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.directories:
        return MIGRATING_DIRECTORY
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


class TopicRules:
    """The rules for the partitions of one topic, with one lookup of its configuration.

    Brokers in `gone` may not lead, whatever the image contains. `coming` may, though the image still has it as fenced.
    """

    __slots__ = ("_coming", "_gone", "_image", "_min_isr", "unclean")

    def __init__(
        self,
        image: MetadataImage,
        settings: Settings,
        topic: TopicImage,
        *,
        gone: Collection[BrokerId | None] = (),
        coming: BrokerId | None = None,
    ) -> None:
        self._image = image
        self._gone = gone
        self._coming = coming
        factor = len(topic.partitions[min(topic.partitions)].replicas)
        self._min_isr = min(settings.min_insync_replicas(image, topic.name), factor)
        self.unclean = settings.unclean_leader_election(image, topic.name)
        """The topic allows elections that lose records."""

    def of(self, partition: PartitionRegistration, election: Election | None = None) -> PartitionRules:
        """The rules for a partition. Without `election`, the topic's configuration decides its kind."""
        image, gone, coming = self._image, self._gone, self._coming

        def acceptable(replica: BrokerId) -> bool:
            if replica in gone or replica not in partition.replicas:
                return False
            if replica != coming and not is_active(image, replica):
                return False
            return is_online_directory(image.brokers.get(replica), partition.directory(replica))

        return PartitionRules(
            is_acceptable_leader=acceptable,
            default_directory=lambda replica: default_directory(image.brokers.get(replica)),
            min_isr=self._min_isr,
            elr_enabled=image.elr_enabled,
            election=election or (Election.UNCLEAN if self.unclean else Election.ONLINE),
            metadata_version=image.metadata_version,
        )


def _changes(
    image: MetadataImage,
    settings: Settings,
    affected: Callable[[PartitionRegistration], bool],
    *,
    remove: BrokerId | None = None,
    add: BrokerId | None = None,
    unclean_shutdown: BrokerId | None = None,
) -> list[PartitionChangeRecord]:
    """Changes of all affected partitions when a broker leaves (`remove`), returns (`add`) or has crashed."""
    gone = {remove, unclean_shutdown} - {None}
    records = []
    for topic in image.topics.by_name.values():
        concerned = [(index, p) for index, p in topic.partitions.items() if affected(p)]
        if not concerned:
            continue
        rules = TopicRules(image, settings, topic, gone=gone, coming=add)
        for index, partition in concerned:
            isr = tuple(replica for replica in partition.isr if replica not in gone)
            target = Target(isr=isr, unclean_shutdown=unclean_shutdown)
            record = change_partition(PartitionId(topic.id, index), partition, rules.of(partition), target)
            if record is not None:
                records.append(record)
    return records


def changes_for_broker_leaving(
    image: MetadataImage, settings: Settings, broker_id: BrokerId
) -> list[PartitionChangeRecord]:
    """The broker is fenced or shuts down: it leaves every ISR and leads no partition."""
    return _changes(image, settings, lambda p: broker_id in p.isr, remove=broker_id)


def changes_for_broker_unregistered(
    image: MetadataImage, settings: Settings, broker_id: BrokerId
) -> list[PartitionChangeRecord]:
    """The broker will not come back: it leaves every ISR, and elections are held where it was eligible."""
    return _changes(image, settings, lambda p: broker_id in p.isr or broker_id in p.elr, remove=broker_id)


def changes_for_unclean_shutdown(
    image: MetadataImage, settings: Settings, broker_id: BrokerId
) -> list[PartitionChangeRecord]:
    """The broker comes back after a crash: it may have lost records."""
    return _changes(
        image, settings, lambda p: broker_id in p.isr or broker_id in p.elr, unclean_shutdown=broker_id
    )


def changes_for_failed_directories(
    image: MetadataImage, settings: Settings, broker_id: BrokerId, failed: Collection[bytes]
) -> list[PartitionChangeRecord]:
    """Log directories of the broker have failed: it cannot serve the partitions in them."""

    def affected(partition: PartitionRegistration) -> bool:
        return broker_id in partition.isr and partition.directory(broker_id) in failed

    return _changes(image, settings, affected, remove=broker_id)


def changes_for_broker_unfenced(
    image: MetadataImage, settings: Settings, broker_id: BrokerId
) -> list[PartitionChangeRecord]:
    """The broker may lead again: elect leaders for the partitions that have none."""
    return _changes(image, settings, lambda p: p.leader == NO_LEADER, add=broker_id)


def changes_for_lost_replicas(
    image: MetadataImage, settings: Settings, broker_id: BrokerId, lost: Iterable[PartitionId]
) -> list[PartitionChangeRecord]:
    """The broker's replicas are in a directory that is lost: they leave their ISRs."""
    records = []
    for partition_id in lost:
        topic = image.topics.by_id[partition_id.topic_id]
        partition = topic.partitions[partition_id.partition]
        rules = TopicRules(image, settings, topic, gone={broker_id}).of(partition)
        isr = tuple(replica for replica in partition.isr if replica != broker_id)
        record = change_partition(partition_id, partition, rules, Target(isr=isr))
        if record is not None:
            records.append(record)
    return records


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Whether the broker leads a partition."""
    return any(p.leader == broker_id for p in all_partitions(image))


def all_partitions(image: MetadataImage) -> Iterator[PartitionRegistration]:
    for topic in image.topics.by_name.values():
        yield from topic.partitions.values()
