"""The target assignment of a group: which member should run which tasks, and its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.coordinator.group.streams.assignor import MemberSpec, StickyTaskAssignor
from ottla.coordinator.group.streams.configure import ConfiguredTopology
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.records import target_epoch_record, target_record
from ottla.coordinator.group.streams.tasks import NO_TASKS, Tasks
from ottla.coordinator.records import CoordinatorRecord


@dataclass(frozen=True, slots=True)
class Target:
    """The tasks of one member, at the epoch at which they were computed."""

    epoch: int
    tasks: Tasks


def current_target(group: StreamsGroup, member_id: str) -> Target:
    return Target(group.assignment_epoch, group.target(member_id))


def compute_target(
    group: StreamsGroup,
    epoch: int,
    updated: StreamsMember | None,
    topology: ConfiguredTopology,
    standby_replicas: int,
    now_ms: int,
) -> tuple[list[CoordinatorRecord], Mapping[str, Tasks]]:
    """The records of the changes, and all targets. `updated` is a member whose change is not replayed yet."""
    members = dict(group.members)
    if updated is not None:
        members[updated.id] = updated
    if topology.ready:
        specs = {id_: MemberSpec(one.process_id, group.target(id_)) for id_, one in members.items()}
        targets = StickyTaskAssignor(specs, topology.subtopologies, standby_replicas).assign()
    else:
        targets = dict.fromkeys(members, NO_TASKS)
    records = [
        target_record(group.group_id, id_, tasks)
        for id_, tasks in sorted(targets.items())
        if group.targets.get(id_) != tasks
    ]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records, targets
