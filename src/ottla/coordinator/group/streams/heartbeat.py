"""One StreamsGroupHeartbeat of a member: the records of its changes, and the response.

`groups.py` has the timers and creates groups.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.streams.configure import ConfiguredTopology, configure
from ottla.coordinator.group.streams.endpoints import endpoints_to_partitions
from ottla.coordinator.group.streams.group import NO_EPOCH, StreamsGroup
from ottla.coordinator.group.streams.member import Endpoint, StreamsMember
from ottla.coordinator.group.streams.reconcile import reconcile
from ottla.coordinator.group.streams.records import (
    current_record,
    group_record,
    member_record,
    topology_record,
)
from ottla.coordinator.group.streams.status import Status, StatusCode
from ottla.coordinator.group.streams.target import Target, compute_target, current_target
from ottla.coordinator.group.streams.tasks import NO_TASKS, Tasks, task_ids, task_structs
from ottla.coordinator.group.streams.topology import TopicInfo, Topology, parse_topology
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire.messages import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.group.streams.settings import StreamsSettings
    from ottla.wire.messages import StreamsGroupHeartbeatRequest

_logger = logging.getLogger(__name__)

REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
"""The metadata reports changes of topics, so that a periodic check is not needed."""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response, and the missing internal topics, which the API creates."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[TopicName, TopicInfo] = field(default_factory=dict)


class Heartbeat:
    """The steps of one heartbeat, in order; each adds to `records` and `statuses`."""

    def __init__(
        self,
        groups: StreamsGroups,
        group: StreamsGroup,
        settings: StreamsSettings,
        request: StreamsGroupHeartbeatRequest,
        now_ms: int,
    ) -> None:
        self._groups = groups
        self._group = group
        self._settings = settings
        self._request = request
        self._now_ms = now_ms
        self._owned = _owned_tasks(request)
        self.records: list[CoordinatorRecord] = []
        self._statuses: list[Status] = []

    def run(self, info: RequestInfo) -> HeartbeatResult:
        group, request = self._group, self._request
        before = self._member_before()
        member = _updated(before, info, request)
        bump = member != before
        if bump:
            self.records.append(member_record(group.group_id, member))
        topology = self._topology()
        if group.topology is not None and member.topology_epoch < group.topology.epoch:
            self._status(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind "
                f"the group's topology epoch {group.topology.epoch}.",
            )
        configured, metadata_hash = self._configure(topology)
        if configured.ready:
            _check_tasks(self._owned, configured)
        epoch = self._bump_epoch(bump, topology, configured, metadata_hash)
        self._groups.delay_first_assignment(group, self._settings)
        target = self._target(epoch, member, configured)
        member = self._reconcile(member, target)
        if request.shutdown_application and group.shutdown_requested_by is None:
            _logger.info("Member %s requests the shutdown of group %s.", member.id, group.group_id)
            group.shutdown_requested_by = member.id
        return self._result(before, member, target, configured)

    def _status(self, code: StatusCode, detail: str) -> None:
        self._statuses.append(Status(code, detail))

    # -- the member

    def _member_before(self) -> StreamsMember:
        request, group = self._request, self._group
        if request.member_epoch == 0:
            return group.members.get(request.member_id) or StreamsMember(request.member_id)
        member = group.member(request.member_id)
        received = request.member_epoch
        if received == member.epoch:
            return member
        # It may not have received the response with the new epoch: then it has no tasks beyond its assignment.
        if (
            received < member.epoch
            and received == member.previous_epoch
            and self._owned is not None
            and member.assigned.covers(self._owned)
        ):
            return member
        raise ApiException(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {'greater' if received > member.epoch else 'smaller'} member epoch "
            f"({received}) than the one known by the group coordinator ({member.epoch}). "
            "The member must abandon all its partitions and rejoin.",
        )

    # -- the topology

    def _topology(self) -> Topology:
        known, given = self._group.topology, self._request.topology
        if given is None:
            if known is None:
                raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
            return known
        topology = parse_topology(given)
        if known is None:
            self.records.append(topology_record(self._group.group_id, topology))
            return topology
        if known.epoch <= topology.epoch and known != topology:
            raise ApiException(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def _configure(self, topology: Topology) -> tuple[ConfiguredTopology, int]:
        """The configured topology, computed again if it is new or if the topics have changed."""
        group = self._group
        if (
            group.topology is not None
            and group.configured is not None
            and not group.metadata_expired(self._now_ms)
        ):
            return group.configured, group.metadata_hash
        metadata_hash = self._groups.metadata_hash(topology)
        if (
            group.topology is None
            or group.configured is None
            or metadata_hash != group.configured.metadata_hash
        ):
            group.configured = configure(topology, metadata_hash, self._groups.partition_count)
            problem = group.configured.problem
            _logger.info(
                "Topology epoch %d of group %s: %s",
                topology.epoch,
                group.group_id,
                "all topics exist" if problem is None else problem.detail,
            )
        return group.configured, metadata_hash

    # -- the group

    def _bump_epoch(
        self, bump: bool, topology: Topology, configured: ConfiguredTopology, metadata_hash: int
    ) -> int:
        group = self._group
        validated = topology.epoch if configured.ready else NO_EPOCH
        configs = self._settings.assignment_configs
        epoch = group.epoch
        if (
            bump
            or metadata_hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            epoch += 1
            self.records.append(group_record(group.group_id, epoch, metadata_hash, validated, configs))
            _logger.info("Group %s is in epoch %d", group.group_id, epoch)
        if epoch != group.epoch or group.metadata_expired(self._now_ms):
            group.refreshed(self._now_ms, epoch, REFRESH_INTERVAL_MS)
        return epoch

    def _target(self, epoch: int, member: StreamsMember, configured: ConfiguredTopology) -> Target:
        group, settings = self._group, self._settings
        if self._groups.first_assignment_delayed(group):
            self._status(
                StatusCode.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured initial rebalance delay.",
            )
            return Target(group.assignment_epoch, NO_TASKS)
        if group.assignment_epoch >= epoch:
            return current_target(group, member.id)
        if group.assigned_recently(settings.assignment_interval_ms, self._now_ms):
            self._status(
                StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
            )
            return current_target(group, member.id)
        records, targets = compute_target(
            group, epoch, member, configured, settings.standby_replicas, self._now_ms
        )
        self.records += records
        return Target(epoch, targets[member.id])

    def _reconcile(self, member: StreamsMember, target: Target) -> StreamsMember:
        if member.reconciled_to(target.epoch):
            return member
        moved = reconcile(member, target.epoch, target.tasks, self._group, self._owned)
        if moved != member:
            self.records.append(current_record(self._group.group_id, moved))
            self._groups.schedule_revocation_timeout(self._group.group_id, moved)
        return moved

    # -- the response

    def _result(
        self, before: StreamsMember, member: StreamsMember, target: Target, configured: ConfiguredTopology
    ) -> HeartbeatResult:
        group = self._group
        message = StreamsGroupHeartbeatResponse
        response = message(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval_ms(member, target, configured),
        )
        if self._must_send_tasks(before, member):
            response.active_tasks = task_structs(message.TaskIds, member.assigned.active)
            response.standby_tasks = task_structs(message.TaskIds, member.assigned.standby)
            response.warmup_tasks = task_structs(message.TaskIds, member.assigned.warmup)
            if member.user_endpoint is not None:
                group.endpoint_epoch += 1
        if self._groups.holds(group):
            # A group that is created by this heartbeat starts to count with the next one.
            response.endpoint_information_epoch = group.endpoint_epoch
        if group.endpoint_epoch != self._request.endpoint_information_epoch:
            others = [one for id_, one in group.members.items() if id_ != member.id]
            response.partitions_by_user_endpoint = endpoints_to_partitions(
                [*others, member], configured.subtopologies, self._groups.partition_count
            )
        if configured.problem is not None:
            self._statuses.append(configured.problem)
        if group.shutdown_requested_by is not None:
            self._status(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_requested_by} encountered a fatal error "
                "and requested a shutdown for the entire application.",
            )
        response.status = [
            message.Status(status_code=status.code, status_detail=status.detail) for status in self._statuses
        ]
        return HeartbeatResult(response, configured.topics_to_create)

    def _must_send_tasks(self, before: StreamsMember, member: StreamsMember) -> bool:
        """Whether the response has the member's tasks. It also has them if the member reports others."""
        if self._request.member_epoch == 0 or before.assigned != member.assigned:
            return True
        return self._owned is not None and self._owned != member.assigned.tasks

    def _interval_ms(self, member: StreamsMember, target: Target, configured: ConfiguredTopology) -> int:
        """Short while internal topics are created or members move tasks."""
        group = self._group
        others = [one for id_, one in group.members.items() if id_ != member.id]
        settled = (
            not any(status.code is StatusCode.ASSIGNMENT_DELAYED for status in self._statuses)
            and not configured.topics_to_create
            and all(one.reconciled_to(target.epoch) for one in (*others, member))
        )
        return self._groups.heartbeat_interval_ms(group.group_id, len(others) + 1, settled)


def _owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(task_ids(active), task_ids(standby), task_ids(warmup))


def _updated(
    member: StreamsMember, info: RequestInfo, request: StreamsGroupHeartbeatRequest
) -> StreamsMember:
    """The member with the fields that the request sets; the others stay."""
    endpoint, tags = request.user_endpoint, request.client_tags
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=info.client_id,
        client_host=info.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
        user_endpoint=member.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
    )


def _check_tasks(owned: Tasks | None, configured: ConfiguredTopology) -> None:
    if owned is None:
        return
    for task in owned.active | owned.standby | owned.warmup:
        subtopology = configured.subtopologies.get(task.subtopology)
        if subtopology is None:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"Subtopology {task.subtopology} does not exist in the topology."
            )
        if not 0 <= task.partition < subtopology.task_count:
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"Task {task.partition} for subtopology {task.subtopology} is invalid. "
                f"Number of tasks for this subtopology: {subtopology.task_count}",
            )
