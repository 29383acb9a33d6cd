"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The broker assigns; to such a member the group seems to have another leader. A heartbeat returns REBALANCE_IN_PROGRESS
when there is a step to make, each join is one step of the reconciliation, and a sync returns the assignment after it.
The member's generation is its member epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.embedded import assignment_bytes, owned_in, subscription_of
from ottla.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from ottla.coordinator.group.consumer.heartbeat import check_size, static_member
from ottla.coordinator.group.consumer.leave import (
    check_instance,
    fence,
    schedule_classic_join,
    schedule_classic_sync,
    schedule_session,
)
from ottla.coordinator.group.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerGroupMember,
    MemberState,
)
from ottla.coordinator.group.consumer.migration import downgrade, may_downgrade_replacing
from ottla.coordinator.group.consumer.resolver import RegexChange, update_regex
from ottla.coordinator.group.consumer.update import MemberUpdate
from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups

_MEMBER_ID_REQUIRED_FROM = 4


class ClassicProtocolMembers:
    """A `ClassicMemberHandler`: the requests of classic members to consumer groups with members."""

    __slots__ = ("_consumers",)

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers

    def join(
        self, info: RequestInfo, request: messages.JoinGroupRequest, now_ms: int
    ) -> CoordinatorResult[messages.JoinGroupResponse]:
        """JoinGroup: one step of the reconciliation."""
        return _join(self._consumers, self._consumers.group(request.group_id), info, request, now_ms)

    def sync(
        self, info: RequestInfo, request: messages.SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[messages.SyncGroupResponse]:
        """SyncGroup: the member's current assignment, in the classic form."""
        return _sync(self._consumers, self._consumers.group(request.group_id), request)

    def heartbeat(
        self, info: RequestInfo, request: messages.HeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[messages.HeartbeatResponse]:
        """Heartbeat: whether there is a step to make."""
        return _heartbeat(self._consumers, self._consumers.group(request.group_id), request)

    def leave(
        self, info: RequestInfo, request: messages.LeaveGroupRequest, now_ms: int
    ) -> CoordinatorResult[messages.LeaveGroupResponse]:
        """LeaveGroup, by members of either protocol or by an administrator (an instance id alone)."""
        return _leave(self._consumers, self._consumers.group(request.group_id), request, now_ms)


def _join(
    consumers: ConsumerGroups,
    group: ConsumerGroup,
    info: RequestInfo,
    request: messages.JoinGroupRequest,
    now_ms: int,
) -> CoordinatorResult[messages.JoinGroupResponse]:
    if settings.migration_policy(consumers.context.config) is settings.MigrationPolicy.DISABLED:
        raise ApiException(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol: migration is disabled",
        )
    is_unknown = not request.member_id
    member_id = request.member_id or consumers.new_member_id()
    instance_id = request.group_instance_id
    check_size(consumers, group, member_id)
    if not group.supports_classic_protocols(request.protocol_type, [each.name for each in request.protocols]):
        raise ApiException(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported"
        )
    if is_unknown and instance_id is None and info.api_version >= _MEMBER_ID_REQUIRED_FROM:
        required = ErrorCode.MEMBER_ID_REQUIRED
        return CoordinatorResult(
            [], messages.JoinGroupResponse(member_id=member_id, error_code=required, protocol_name=None)
        )
    records: list[CoordinatorRecord] = []
    replaced = group.static_member(instance_id)
    if instance_id is None:
        member = group.members.get(member_id) or ConsumerGroupMember(member_id)
    else:
        member = static_member(group, member_id, instance_id, is_unknown, True, records)

    subscription = subscription_of(request.protocols[0].metadata)
    update = MemberUpdate(
        consumers.context,
        group,
        member,
        _with_request(member, info, request, subscription),
        now_ms,
        records,
        consumers.topic_hashes,
    )
    update.write_member()
    changed = update.names_changed
    changed = update_regex(consumers, update, info.may_describe) is not RegexChange.NONE or changed
    update.refresh_metadata(bump=changed)
    reported = owned_in(subscription, consumers.context.image)
    if may_downgrade_replacing(consumers, group, replaced):
        rebalance = group.assignment_epoch < update.epoch
        if not rebalance:
            update.reconcile(reported, subscription_changed=changed)
        joined = update.new
        records, committed = downgrade(
            consumers, group, now_ms, joining=joined, written=records, rebalance=rebalance
        )
        return CoordinatorResult(records, _joined(joined), on_committed=committed)
    update.assign()
    update.reconcile(reported, subscription_changed=changed)
    return CoordinatorResult(
        records, _joined(update.new), on_committed=_start_timers(consumers, group.group_id, update.new)
    )


def _with_request(
    member: ConsumerGroupMember,
    info: RequestInfo,
    request: messages.JoinGroupRequest,
    subscription: messages.ConsumerProtocolSubscription,
) -> ConsumerGroupMember:
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if rebalance_timeout_ms == -1
        else rebalance_timeout_ms,
        topic_names=frozenset(map(TopicName, subscription.topics)),
        topic_regex="",
        client_id=info.client_id,
        client_host=info.client_host,
        classic=ClassicMember(
            request.session_timeout_ms,
            tuple(ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols),
        ),
    )


def _joined(member: ConsumerGroupMember) -> messages.JoinGroupResponse:
    assert member.classic is not None
    return messages.JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0].name,
    )


def _start_timers(
    consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember
) -> Callable[[ApiException | None], None]:
    def start(error: ApiException | None) -> None:
        if error is None:
            consumers.context.timers.cancel(("consumer-join", group_id, member.member_id))
            schedule_session(consumers, group_id, member)
            schedule_classic_sync(consumers, group_id, member.member_id, member.rebalance_timeout_ms)

    return start


def _sync(
    consumers: ConsumerGroups, group: ConsumerGroup, request: messages.SyncGroupRequest
) -> CoordinatorResult[messages.SyncGroupResponse]:
    member = _classic_member(group, request)
    classic = member.classic
    assert classic is not None
    chosen = classic.protocols[0]
    if (request.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or (
        request.protocol_name or chosen.name
    ) != chosen.name:
        raise ApiException(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member.member_id} joined with {PROTOCOL_TYPE}/{chosen.name}, "
            f"not {request.protocol_type}/{request.protocol_name}",
        )
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        schedule_classic_join(consumers, group.group_id, member)
        raise ApiException(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group.group_id}: member {member.member_id} should rejoin",
        )
    consumers.context.timers.cancel(("consumer-sync", group.group_id, member.member_id))
    schedule_session(consumers, group.group_id, member)
    assignment = assignment_bytes(member.assigned, chosen.metadata, consumers.context.image)
    return CoordinatorResult(
        [],
        messages.SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        ),
    )


def _heartbeat(
    consumers: ConsumerGroups, group: ConsumerGroup, request: messages.HeartbeatRequest
) -> CoordinatorResult[messages.HeartbeatResponse]:
    member = _classic_member(group, request)
    schedule_session(consumers, group.group_id, member)
    code = ErrorCode.NONE
    if (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    ):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        schedule_classic_join(consumers, group.group_id, member)
    return CoordinatorResult([], messages.HeartbeatResponse(error_code=code))


def _classic_member(
    group: ConsumerGroup, request: messages.SyncGroupRequest | messages.HeartbeatRequest
) -> ConsumerGroupMember:
    """The sender of a SyncGroup or Heartbeat. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    member = _member_of(group, request.member_id, request.group_instance_id)
    check_instance(member, request.member_id)
    if not member.uses_classic_protocol:
        raise ApiException(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol"
        )
    if member.epoch != request.generation_id:
        raise ApiException(
            ErrorCode.ILLEGAL_GENERATION,
            f"Generation {request.generation_id} is not the epoch of member {member.member_id}, {member.epoch}",
        )
    return member


def _member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise ApiException(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is not in group {group.group_id}"
        )
    if member_id:
        check_instance(member, member_id)
    return member


def _leave(
    consumers: ConsumerGroups, group: ConsumerGroup, request: messages.LeaveGroupRequest, now_ms: int
) -> CoordinatorResult[messages.LeaveGroupResponse]:
    response = messages.LeaveGroupResponse
    responses = []
    leaving: dict[str, ConsumerGroupMember] = {}
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            member = _member_of(group, identity.member_id, identity.group_instance_id)
            leaving[member.member_id] = member
        except ApiException as error:
            code = error.code
        responses.append(
            response.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    return fence(consumers, group, leaving.values(), response(members=responses), now_ms)
