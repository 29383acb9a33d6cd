"""Converts a partition's registration from and to its records, and applies change records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_FROM, ELR_RECORDS_FROM, LATEST_METADATA_VERSION
from ottla.metadata.image import NO_LEADER_CHANGE, PartitionRegistration
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.ids import BrokerId

DIRECTORY_MIGRATING: Final = bytes(16)
"""A replica whose directory was never recorded (from before metadata.version 3.7-IV2)."""
DIRECTORY_UNASSIGNED: Final = bytes(15) + b"\x01"
"""A replica whose broker has not chosen a directory yet."""
DIRECTORY_LOST: Final = bytes(15) + b"\x02"
"""A replica in a directory that its broker has lost."""

_NO_CHANGE: Final = -1
"""The leader recovery state of a change record that does not change it."""


def partition_from_record(r: messages.PartitionRecord) -> PartitionRegistration:
    """The partition that a PartitionRecord describes."""
    replicas = tuple(r.replicas)
    return PartitionRegistration(
        replicas,
        _directories(r.directories, replicas),
        # Kafka's schema does not call these broker ids.
        cast("tuple[BrokerId, ...]", tuple(r.isr)),
        r.leader,
        r.leader_epoch,
        r.partition_epoch,
        tuple(r.removing_replicas),
        tuple(r.adding_replicas),
        tuple(r.eligible_leader_replicas or ()),
        tuple(r.last_known_elr or ()),
        r.leader_recovery_state,
    )


def partition_to_record(
    topic_id: bytes, index: int, p: PartitionRegistration, metadata_version: int = LATEST_METADATA_VERSION
) -> messages.PartitionRecord:
    """The PartitionRecord for this partition, with the fields that this metadata.version has."""
    with_elr = metadata_version >= ELR_RECORDS_FROM
    return messages.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(p.replicas),
        isr=list(p.isr),
        removing_replicas=list(p.removing_replicas),
        adding_replicas=list(p.adding_replicas),
        leader=p.leader,
        leader_recovery_state=p.leader_recovery_state,
        leader_epoch=p.leader_epoch,
        partition_epoch=p.partition_epoch,
        directories=list(p.directories) if metadata_version >= DIRECTORY_ASSIGNMENT_FROM else [],
        eligible_leader_replicas=(list(p.elr) or None) if with_elr else None,
        last_known_elr=(list(p.last_known_elr) or None) if with_elr else None,
    )


def merge_partition(old: PartitionRegistration, r: messages.PartitionChangeRecord) -> PartitionRegistration:
    """The partition after a PartitionChangeRecord. Fields that the record leaves out stay; the epochs increase."""
    replicas = old.replicas if r.replicas is None else tuple(r.replicas)
    changes_leader = r.leader != NO_LEADER_CHANGE
    return PartitionRegistration(
        replicas,
        _directories(old.directories if r.directories is None else r.directories, replicas),
        old.isr if r.isr is None else tuple(r.isr),
        r.leader if changes_leader else old.leader,
        old.leader_epoch + 1 if changes_leader else old.leader_epoch,
        old.partition_epoch + 1,
        old.removing_replicas if r.removing_replicas is None else tuple(r.removing_replicas),
        old.adding_replicas if r.adding_replicas is None else tuple(r.adding_replicas),
        old.elr if r.eligible_leader_replicas is None else tuple(r.eligible_leader_replicas),
        old.last_known_elr if r.last_known_elr is None else tuple(r.last_known_elr),
        old.leader_recovery_state if r.leader_recovery_state == _NO_CHANGE else r.leader_recovery_state,
    )


def without_elr(p: PartitionRegistration) -> PartitionRegistration:
    """The partition without its eligible leader replicas."""
    return replace(p, elr=(), last_known_elr=())


def _directories(directories: Sequence[bytes], replicas: tuple[BrokerId, ...]) -> tuple[bytes, ...]:
    if not directories:
        return (DIRECTORY_MIGRATING,) * len(replicas)
    if len(directories) != len(replicas):
        raise ApiException(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"a partition record has {len(replicas)} replicas but {len(directories)} directories",
        )
    return tuple(directories)
