"""One partition's change: computes the PartitionChangeRecord from its registration and its target.

A pure function. It completes a reassignment whose replicas are in sync, maintains the eligible leader replicas (ELR),
elects a leader and decides when the leader epoch increases. Other modules decide which change to make. `ottla.metadata`
applies the record: a leader field increases the leader epoch, and every record increases the partition epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from ottla.ids import BrokerId
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_FROM
from ottla.metadata.image import NO_LEADER, NO_LEADER_CHANGE, LeaderRecoveryState, PartitionRegistration
from ottla.wire.messages import PartitionChangeRecord

_NO_EPOCH_BUMP_ON_SHRINK: Final = 12
"""From this metadata.version on, followers accept an ISR that shrinks within a leader epoch."""
_NO_RECOVERY_CHANGE: Final = -1

Replicas = tuple[BrokerId, ...]


class Election(Enum):
    """Which replicas an election may choose."""

    PREFERRED = "the first replica if it may lead, else any that may"
    ONLINE = "from the in-sync (or eligible) replicas"
    UNCLEAN = "from any live replica if there is no other, losing the records that it lacks"


class PartitionId(NamedTuple):
    """A partition of a topic, by topic id."""

    topic_id: bytes
    partition: int


class PartitionRules(msgspec.Struct, frozen=True):
    """What a partition's change depends on besides its registration."""

    is_acceptable_leader: Callable[[BrokerId], bool]
    default_directory: Callable[[BrokerId], bytes]
    """The recorded directory of a replica that the partition did not have before."""
    min_isr: int
    elr_enabled: bool
    election: Election
    metadata_version: int


class Target(msgspec.Struct, frozen=True):
    """The wanted values of a partition; None leaves a value unchanged."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    directories: Mapping[BrokerId, bytes] = msgspec.field(default_factory=dict)
    """The directories of replicas, as far as they change."""
    leader_recovery_state: int | None = None
    unclean_shutdown: BrokerId | None = None
    """A broker that restarted after a crash: it is not eligible as a leader."""


NO_TARGET: Final = Target()


class _Draft(msgspec.Struct):
    """The partition as it will be."""

    replicas: Replicas
    isr: Replicas
    removing: Replicas
    adding: Replicas
    elr: Replicas


def change_partition(
    partition_id: PartitionId,
    partition: PartitionRegistration,
    rules: PartitionRules,
    target: Target = NO_TARGET,
) -> PartitionChangeRecord | None:
    """The record that brings the partition to its target, with an acceptable leader; None if nothing changes."""
    draft = _Draft(
        replicas=_given(target.replicas, partition.replicas),
        isr=_given(target.isr, partition.isr),
        removing=_given(target.removing, partition.removing_replicas),
        adding=_given(target.adding, partition.adding_replicas),
        elr=partition.elr,
    )
    _complete_reassignment(draft)
    _populate_elr(draft, partition, rules, target.unclean_shutdown)
    record = PartitionChangeRecord(topic_id=partition_id.topic_id, partition_id=partition_id.partition)
    unclean = _elect_into(record, draft, partition, rules)
    if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(draft.replicas):
        # A replica that leaves must not act in the current leader epoch.
        record.leader = partition.leader
    if unclean or not rules.elr_enabled:
        draft.elr = ()
    if draft.elr != partition.elr:
        record.eligible_leader_replicas = list(draft.elr)
    if unclean or draft.isr != partition.isr:
        _set_isr(record, draft, partition, rules)
    if rules.elr_enabled:
        _note_last_leader(record, partition)
    _set_assignment(record, draft, partition, rules, target)
    recovery = target.leader_recovery_state
    if recovery is not None and recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
    return None if _changes_nothing(record) else record


def _given(wanted: Replicas | None, current: Replicas) -> Replicas:
    return current if wanted is None else wanted


def _without(replicas: Replicas, out: Replicas) -> Replicas:
    return tuple(replica for replica in replicas if replica not in out)


def _complete_reassignment(draft: _Draft) -> None:
    """A reassignment is complete when all added replicas and at least one remaining replica are in sync."""
    if not (draft.removing or draft.adding):
        return
    isr = _without(draft.isr, draft.removing)
    replicas = _without(draft.replicas, draft.removing)
    if draft.removing and not (isr and replicas):
        return
    if not set(draft.adding) <= set(isr):
        return
    # With a smaller replication factor, all remaining replicas must be in sync first.
    if len(draft.adding) < len(draft.removing) and not set(replicas) <= set(isr):
        return
    draft.isr, draft.replicas = isr, replicas
    draft.removing = draft.adding = ()


def _populate_elr(
    draft: _Draft, partition: PartitionRegistration, rules: PartitionRules, unclean_shutdown: BrokerId | None
) -> None:
    """Replicas outside the ISR that have all committed records: its members when it fell below the min ISR."""
    if not rules.elr_enabled:
        return
    if len(draft.isr) >= rules.min_isr:
        draft.elr = ()
        return
    candidates = {*partition.elr, *partition.isr} - {*draft.isr}
    candidates.discard(NO_LEADER if unclean_shutdown is None else unclean_shutdown)
    draft.elr = tuple(sorted(candidates))


def _elect_into(
    record: PartitionChangeRecord, draft: _Draft, partition: PartitionRegistration, rules: PartitionRules
) -> bool:
    """Set the leader if it changes. Returns whether the new one may lack committed records."""
    leader, unclean = _elect(draft, partition, rules)
    if leader == partition.leader:
        return False
    record.leader = leader
    if leader in draft.elr:
        draft.isr = (leader,)
        draft.elr = _without(draft.elr, (leader,))
    if unclean:
        draft.isr = (leader,)
        if partition.leader_recovery_state != LeaderRecoveryState.RECOVERING:
            record.leader_recovery_state = LeaderRecoveryState.RECOVERING
    return unclean


def _elect(draft: _Draft, partition: PartitionRegistration, rules: PartitionRules) -> tuple[BrokerId, bool]:
    """The next leader, and whether it may lack committed records."""
    eligible = draft.isr or draft.elr

    def may_lead(replica: BrokerId) -> bool:
        return replica in eligible and rules.is_acceptable_leader(replica)

    if rules.election is Election.PREFERRED and may_lead(draft.replicas[0]):
        return draft.replicas[0], False
    if may_lead(partition.leader):
        return partition.leader, False
    for replica in draft.replicas:
        if may_lead(replica):
            return replica, False
    last = partition.last_known_elr
    # With no eligible replica left, the last leader has the most records. It is elected without a request.
    if rules.elr_enabled and not eligible and len(last) == 1 and rules.is_acceptable_leader(last[0]):
        return last[0], True
    if rules.election is Election.UNCLEAN:
        for replica in draft.replicas:
            if rules.is_acceptable_leader(replica):
                return replica, True
    return NO_LEADER, False


def _set_isr(
    record: PartitionChangeRecord, draft: _Draft, partition: PartitionRegistration, rules: PartitionRules
) -> None:
    # Without ELR the last member stays in the ISR: it shows which replica may lead again.
    if not (draft.isr or rules.elr_enabled):
        return
    record.isr = list(draft.isr)
    shrinks = not set(partition.isr) <= set(draft.isr)
    bump = rules.metadata_version < _NO_EPOCH_BUMP_ON_SHRINK
    if shrinks and bump and record.leader == NO_LEADER_CHANGE:
        record.leader = partition.leader


def _note_last_leader(record: PartitionChangeRecord, partition: PartitionRegistration) -> None:
    """A partition that loses its leader remembers it until it has a leader again."""
    if record.leader == NO_LEADER and not partition.last_known_elr:
        record.last_known_elr = [partition.leader]
    elif record.leader >= 0 and partition.last_known_elr:
        record.last_known_elr = []


def _set_assignment(
    record: PartitionChangeRecord,
    draft: _Draft,
    partition: PartitionRegistration,
    rules: PartitionRules,
    target: Target,
) -> None:
    if rules.metadata_version >= DIRECTORY_ASSIGNMENT_FROM and (
        target.directories or draft.replicas != partition.replicas
    ):
        known = {**dict(zip(partition.replicas, partition.directories, strict=True)), **target.directories}
        directories = [
            known[replica] if replica in known else rules.default_directory(replica)
            for replica in draft.replicas
        ]
        if directories != list(partition.directories):
            record.directories = directories
    if draft.replicas != partition.replicas:
        record.replicas = list(draft.replicas)
    if draft.removing != partition.removing_replicas:
        record.removing_replicas = list(draft.removing)
    if draft.adding != partition.adding_replicas:
        record.adding_replicas = list(draft.adding)


def _changes_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == _NO_RECOVERY_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
    )
