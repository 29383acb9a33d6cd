"""Changes of leaders and in-sync replicas: the PartitionChangeRecords that a broker's coming or going needs.

Pure functions on the image. Who triggers them is `brokers.py`; what the record does to the epochs (leader epoch up
with every leader field, partition epoch up with every record) is `ottla.metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.controller.cluster import is_active
from ottla.controller.result import Message
from ottla.controller.settings import Settings
from ottla.metadata.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerRegistration,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
)
from ottla.wire.messages import PartitionChangeRecord

MIGRATING_DIRECTORY: Final = bytes(16)
"""The directory id of replicas from before directories had ids."""
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
"""The broker chooses among its directories and tells the controller later."""
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
"""The replica was in a directory that is gone."""

_NO_EPOCH_BUMP_ON_SHRINK: Final = 12
"""From this metadata.version on, followers cope with an ISR that shrinks within a leader epoch."""


class Election(Enum):
    """How far to go for a leader."""

    ONLINE = "from the in-sync (or eligible) replicas"
    UNCLEAN = "from any live replica if there is no other way, losing what it lacks"


class PartitionId(NamedTuple):
    """A partition of a topic, by topic id."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """What decides about a partition's change besides its registration."""

    is_acceptable_leader: Callable[[int], bool]
    min_isr: int
    elr_enabled: bool
    election: Election
    metadata_version: int


def is_online_directory(broker: BrokerRegistration | None, directory: bytes) -> bool:
    """Whether a replica in this directory of the broker can serve."""
    if broker is None or directory == LOST_DIRECTORY:
        return False
    if directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY) or not broker.directories:
        return True
    return directory in broker.directories


def default_directory(broker: BrokerRegistration | None) -> bytes:
    """The directory that a new replica on this broker is recorded with."""
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.directories:
        return MIGRATING_DIRECTORY
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


def change_partition(
    partition_id: PartitionId,
    partition: PartitionRegistration,
    target_isr: tuple[int, ...],
    rules: PartitionRules,
    unclean_shutdown: int | None = None,
) -> Message | None:
    """The record that brings the partition to this ISR with a leader that may lead, or None if all is well.

    `unclean_shutdown` is a broker that lost its memory of what it had: it is eligible for nothing.
    """
    elr = _eligible_replicas(partition, target_isr, rules, unclean_shutdown)
    leader, unclean = _elect(partition, target_isr, elr, rules)
    record = PartitionChangeRecord(topic_id=partition_id.topic_id, partition_id=partition_id.partition)
    isr = target_isr
    if leader != partition.leader:
        record.leader = leader
        if leader in elr:
            isr = (leader,)
            elr = tuple(replica for replica in elr if replica != leader)
        elif unclean:
            isr = (leader,)
            elr = ()
            if partition.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    # Without ELR the last member stays in the ISR, or nobody would know who may lead again.
    if isr != partition.isr and (isr or rules.elr_enabled):
        record.isr = list(isr)
        shrinks = not set(partition.isr) <= set(isr)
        if (
            shrinks
            and rules.metadata_version < _NO_EPOCH_BUMP_ON_SHRINK
            and record.leader == NO_LEADER_CHANGE
        ):
            record.leader = partition.leader
    if rules.elr_enabled:
        _note_last_leader(record, partition)
    return None if _changes_nothing(record) else record


def _eligible_replicas(
    partition: PartitionRegistration,
    target_isr: tuple[int, ...],
    rules: PartitionRules,
    unclean_shutdown: int | None,
) -> tuple[int, ...]:
    """Replicas out of the ISR that still have everything committed: those it had when it fell below min ISR."""
    if not rules.elr_enabled or len(target_isr) >= rules.min_isr:
        return ()
    candidates = {*partition.elr, *partition.isr} - {*target_isr}
    candidates.discard(NO_LEADER if unclean_shutdown is None else unclean_shutdown)
    return tuple(sorted(candidates))


def _elect(
    partition: PartitionRegistration, isr: tuple[int, ...], elr: tuple[int, ...], rules: PartitionRules
) -> tuple[int, bool]:
    """The leader to be, and whether it may lack committed records."""
    eligible = isr or elr

    def may_lead(replica: int) -> bool:
        return replica in eligible and rules.is_acceptable_leader(replica)

    if may_lead(partition.leader):
        return partition.leader, False
    for replica in partition.replicas:
        if may_lead(replica):
            return replica, False
    last = partition.last_known_elr
    # With nobody eligible left, the last leader has the most; it comes back on its own, without being asked.
    if rules.elr_enabled and not eligible and len(last) == 1 and rules.is_acceptable_leader(last[0]):
        return last[0], True
    if rules.election is Election.UNCLEAN:
        for replica in partition.replicas:
            if rules.is_acceptable_leader(replica):
                return replica, True
    return NO_LEADER, False


def _note_last_leader(record: Message, partition: PartitionRegistration) -> None:
    """A partition that loses its leader remembers who it was, until it has one again."""
    if record.leader == NO_LEADER and not partition.last_known_elr:
        record.last_known_elr = [partition.leader]
    elif record.leader >= 0 and partition.last_known_elr:
        record.last_known_elr = []


def _changes_nothing(record: Message) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.leader_recovery_state == -1
    )


def _all_partitions(image: MetadataImage) -> Iterator[tuple[PartitionId, str, PartitionRegistration]]:
    for topic in image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            yield PartitionId(topic.id, index), topic.name, partition


def _changes(
    image: MetadataImage,
    settings: Settings,
    affected: Callable[[PartitionRegistration], bool],
    *,
    remove: int | None = None,
    add: int | None = None,
    unclean_shutdown: int | None = None,
) -> list[Message]:
    """Changes of all affected partitions when one broker goes (`remove`), returns (`add`) or lost its disk cache."""
    gone = {remove, unclean_shutdown}

    def rules_for(topic: str, partition: PartitionRegistration) -> PartitionRules:
        def acceptable(replica: int) -> bool:
            if replica in gone or replica not in partition.replicas:
                return False
            # A broker that is just being unfenced still shows as fenced in the image.
            if replica != add and not is_active(image, replica):
                return False
            return is_online_directory(image.brokers.get(replica), partition.directory(replica))

        unclean = settings.unclean_leader_election(image, topic)
        return PartitionRules(
            is_acceptable_leader=acceptable,
            min_isr=min(settings.min_insync_replicas(image, topic), len(partition.replicas)),
            elr_enabled=image.elr_enabled,
            election=Election.UNCLEAN if unclean else Election.ONLINE,
            metadata_version=image.metadata_version,
        )

    records = []
    for partition_id, topic, partition in _all_partitions(image):
        if affected(partition):
            target = tuple(replica for replica in partition.isr if replica not in gone)
            rules = rules_for(topic, partition)
            record = change_partition(partition_id, partition, target, rules, unclean_shutdown)
            if record is not None:
                records.append(record)
    return records


def changes_for_broker_leaving(image: MetadataImage, settings: Settings, broker_id: int) -> list[Message]:
    """The broker is fenced or shuts down: out of every ISR, and no longer a leader."""
    return _changes(image, settings, lambda p: broker_id in p.isr, remove=broker_id)


def changes_for_broker_unregistered(
    image: MetadataImage, settings: Settings, broker_id: int
) -> list[Message]:
    """The broker will not come back: it is not eligible either."""
    return _changes(image, settings, lambda p: broker_id in p.isr or broker_id in p.elr, remove=broker_id)


def changes_for_unclean_shutdown(image: MetadataImage, settings: Settings, broker_id: int) -> list[Message]:
    """The broker comes back after a crash: what it had is not certain any more."""
    return _changes(
        image, settings, lambda p: broker_id in p.isr or broker_id in p.elr, unclean_shutdown=broker_id
    )


def changes_for_failed_directories(
    image: MetadataImage, settings: Settings, broker_id: int, failed: Collection[bytes]
) -> list[Message]:
    """Log directories of the broker have failed: it cannot serve the partitions in them."""

    def affected(partition: PartitionRegistration) -> bool:
        return broker_id in partition.isr and partition.directory(broker_id) in failed

    return _changes(image, settings, affected, remove=broker_id)


def changes_for_broker_unfenced(image: MetadataImage, settings: Settings, broker_id: int) -> list[Message]:
    """The broker may lead again: elect leaders for the partitions that have none."""
    return _changes(image, settings, lambda p: p.leader == NO_LEADER, add=broker_id)


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in _all_partitions(image))
