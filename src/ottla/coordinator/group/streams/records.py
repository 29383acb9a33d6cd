"""The records of streams groups in `__consumer_offsets`; `replay.py` applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.group import modern_records
from ottla.coordinator.group.modern_records import ModernRecords
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.tasks import TaskId, Tasks, task_structs
from ottla.coordinator.group.streams.topology import Topology, topology_value
from ottla.coordinator.records import CoordinatorRecord
from ottla.wire import messages

_RECORDS: Final = ModernRecords(
    messages.StreamsGroupCurrentMemberAssignmentKey,
    messages.StreamsGroupTargetAssignmentMemberKey,
    messages.StreamsGroupMemberMetadataKey,
    messages.StreamsGroupTargetAssignmentMetadataKey,
    messages.StreamsGroupTargetAssignmentMetadataValue,
)
target_epoch_record = _RECORDS.target_epoch
member_tombstones = _RECORDS.member_tombstones


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    value = messages.StreamsGroupMemberMetadataValue
    endpoint = member.user_endpoint
    return CoordinatorRecord(
        messages.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.id),
        value(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None
            if endpoint is None
            else value.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[
                value.KeyValue(key=key, value=tag) for key, tag in sorted(member.client_tags.items())
            ],
        ),
    )


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, assignment_configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = messages.StreamsGroupMetadataValue
    return CoordinatorRecord(
        messages.StreamsGroupMetadataKey(group_id=group_id),
        value(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[
                value.LastAssignmentConfig(key=key, value=text)
                for key, text in sorted(assignment_configs.items())
            ],
        ),
    )


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    return CoordinatorRecord(messages.StreamsGroupTopologyKey(group_id=group_id), topology_value(topology))


def target_record(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    value = messages.StreamsGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        messages.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            active_tasks=task_structs(value.TaskIds, target.active),
            standby_tasks=task_structs(value.TaskIds, target.standby),
            warmup_tasks=task_structs(value.TaskIds, target.warmup),
        ),
    )


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    value = messages.StreamsGroupCurrentMemberAssignmentValue
    assigned, pending = member.assigned, member.pending_revocation
    return CoordinatorRecord(
        messages.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.id),
        value(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            active_tasks=_with_epochs(assigned.active),
            standby_tasks=task_structs(value.TaskIds, assigned.standby),
            warmup_tasks=task_structs(value.TaskIds, assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(pending.active),
            standby_tasks_pending_revocation=task_structs(value.TaskIds, pending.standby),
            warmup_tasks_pending_revocation=task_structs(value.TaskIds, pending.warmup),
        ),
    )


def _with_epochs(
    tasks: Mapping[TaskId, int],
) -> list[messages.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    structs = task_structs(messages.StreamsGroupCurrentMemberAssignmentValue.TaskIds, tasks)
    for struct in structs:
        struct.assignment_epochs = [
            tasks[TaskId(struct.subtopology_id, partition)] for partition in struct.partitions
        ]
    return structs


def group_tombstones(group_id: str, member_ids: list[str]) -> list[CoordinatorRecord]:
    """All records of a group and of the members that it still has."""
    return [
        *_RECORDS.members_tombstones(group_id, member_ids),
        *modern_records.group_tombstones(
            group_id, (messages.StreamsGroupMetadataKey, messages.StreamsGroupTopologyKey)
        ),
    ]
