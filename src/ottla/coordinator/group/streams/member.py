"""A member of a streams group: one stream thread. Members are immutable; `group.py` keeps the newest of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from ottla.coordinator.group.streams.tasks import (
    NO_OWNED_TASKS,
    OwnedTasks,
    TaskId,
    Tasks,
    task_ids,
    task_structs,
)
from ottla.wire.messages import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupDescribeResponse,
    StreamsGroupMemberMetadataValue,
)


class MemberState(IntEnum):
    """The state of a member on the way to its target; Kafka's numbers."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has to revoke tasks, and to report that, before it gets its new epoch."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others have not revoked yet."""
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class Endpoint(NamedTuple):
    """The address at which an application serves interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member; the defaults are those of a new one."""

    id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: OwnedTasks = NO_OWNED_TASKS
    pending_revocation: OwnedTasks = NO_OWNED_TASKS

    def reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """The member with the fields that its metadata record sets."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None
            if value.user_endpoint is None
            else Endpoint(value.user_endpoint.host, value.user_endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """The member with the fields that its current assignment record sets."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=OwnedTasks(
                _with_epochs(value.active_tasks, value.member_epoch),
                task_ids(value.standby_tasks),
                task_ids(value.warmup_tasks),
            ),
            pending_revocation=OwnedTasks(
                _with_epochs(value.active_tasks_pending_revocation, value.member_epoch),
                task_ids(value.standby_tasks_pending_revocation),
                task_ids(value.warmup_tasks_pending_revocation),
            ),
        )


def _with_epochs(
    groups: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds], member_epoch: int
) -> dict[TaskId, int]:
    """Tasks with their epochs; older records have none, so that the member's epoch is used."""
    owned = {}
    for group in groups:
        epochs = group.assignment_epochs
        if epochs is None or len(epochs) != len(group.partitions):
            epochs = [member_epoch] * len(group.partitions)
        for partition, epoch in zip(group.partitions, epochs, strict=True):
            owned[TaskId(group.subtopology_id, partition)] = epoch
    return owned


def describe_member(member: StreamsMember, target: Tasks) -> StreamsGroupDescribeResponse.Member:
    """For StreamsGroupDescribe."""
    response = StreamsGroupDescribeResponse
    assigned = member.assigned
    return response.Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if member.user_endpoint is None
        else response.Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
        client_tags=[
            response.KeyValue(key=key, value=value) for key, value in sorted(member.client_tags.items())
        ],
        assignment=response.Assignment(
            active_tasks=task_structs(response.TaskIds, assigned.active),
            standby_tasks=task_structs(response.TaskIds, assigned.standby),
            warmup_tasks=task_structs(response.TaskIds, assigned.warmup),
        ),
        target_assignment=response.Assignment(
            active_tasks=task_structs(response.TaskIds, target.active),
            standby_tasks=task_structs(response.TaskIds, target.standby),
            warmup_tasks=task_structs(response.TaskIds, target.warmup),
        ),
    )
