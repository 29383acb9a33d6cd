"""ConsumerGroupHeartbeat: join a group, stay in it, and learn the assignment.

A member joins with epoch 0, then repeats its epoch; fields that it leaves out of a request have not changed. The
response has its assignment when that has changed, or when the member sent all fields (after joining or an error).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.config.broker import BrokerConfig
from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.leave import (
    cancel_rebalance,
    check_instance,
    leave,
    schedule_rebalance,
    schedule_session,
)
from ottla.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from ottla.coordinator.group.consumer.reconcile import Reported
from ottla.coordinator.group.consumer.resolver import RegexChange, lookup_key, update_regex
from ottla.coordinator.group.consumer.update import MemberUpdate
from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.heartbeat_interval import heartbeat_interval_ms
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.wire.messages import ConsumerGroupHeartbeatRequest

_CLIENT_NAMES_MEMBER_FROM = 1
"""From this version on a client creates its member id itself."""


def validate(request: ConsumerGroupHeartbeatRequest, version: int, config: BrokerConfig) -> None:
    """Check a heartbeat without its group; raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if version >= _CLIENT_NAMES_MEMBER_FROM or epoch > 0 or epoch == LEAVE_EPOCH:
        _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignors = settings.assignor_names(config)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiException(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, message)


def heartbeat(
    consumers: ConsumerGroups, info: RequestInfo, request: ConsumerGroupHeartbeatRequest, now_ms: int
) -> CoordinatorResult[messages.ConsumerGroupHeartbeatResponse]:
    """Run a valid request."""
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return leave(consumers, request, now_ms)
    records: list[CoordinatorRecord] = []
    joins = request.member_epoch == JOIN_EPOCH
    group = (
        consumers.group_for_join(request.group_id, records) if joins else consumers.group(request.group_id)
    )
    member_id = request.member_id or consumers.new_member_id()
    check_size(consumers, group, member_id)
    reported = _reported(request.topic_partitions)
    if request.instance_id is None:
        member = group.members.get(member_id) if joins else group.member(member_id)
        member = member or ConsumerGroupMember(member_id)
    else:
        member = static_member(group, member_id, request.instance_id, joins, False, records)
    check_epoch(member, request.member_epoch, reported)

    update = MemberUpdate(
        consumers.context,
        group,
        member,
        _with_request(member, info, request),
        now_ms,
        records,
        consumers.topic_hashes,
    )
    update.write_member()
    regex = update_regex(consumers, update, info.may_describe)
    update.refresh_metadata(bump=update.names_changed or regex is RegexChange.RESOLVED)
    update.assign()
    update.reconcile(reported, subscription_changed=update.names_changed or regex is not RegexChange.NONE)
    _schedule(consumers, group.group_id, member, update.new)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and reported is not None
    )
    with_assignment = joins or is_full or member.assigned != update.new.assigned
    return CoordinatorResult(records, _response(consumers, update, with_assignment))


def _response(
    consumers: ConsumerGroups, update: MemberUpdate, with_assignment: bool
) -> messages.ConsumerGroupHeartbeatResponse:
    group, member = update.group, update.new
    settled = (
        group.is_reconciled
        and member.is_reconciled_to(update.epoch)
        and group.epoch == update.epoch == group.assignment_epoch
        and not consumers.context.timers.is_scheduled(lookup_key(group.group_id))
    )
    return messages.ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            consumers.context,
            GroupType.CONSUMER,
            group.group_id,
            # Stable groups share a budget with the rest of the shard.
            members=consumers.member_count if settled else len(group.members),
            settled=settled,
        ),
        assignment=_assignment(member.assigned) if with_assignment else None,
    )


def _assignment(owned: OwnedPartitions) -> messages.ConsumerGroupHeartbeatResponse.Assignment:
    response = messages.ConsumerGroupHeartbeatResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in owned.items()
        ]
    )


def _reported(topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Reported | None:
    return None if topics is None else {topic.topic_id: topic.partitions for topic in topics}


def _with_request(
    member: ConsumerGroupMember, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupMember:
    """The member with the fields that the request sets; the member itself if nothing changes."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    topic_names = member.topic_names if names is None else frozenset(names)
    updated = (
        member.instance_id if request.instance_id is None else request.instance_id,
        member.rack_id if request.rack_id is None else request.rack_id,
        member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        member.server_assignor if request.server_assignor is None else request.server_assignor,
        member.topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
    )
    known = (
        member.instance_id,
        member.rack_id,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.topic_regex,
    )
    if (
        updated == known
        and topic_names == member.topic_names
        and (info.client_id, info.client_host) == (member.client_id, member.client_host)
        and member.classic is None
    ):
        return member
    instance_id, rack_id, rebalance_timeout_ms, server_assignor, topic_regex = updated
    return replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=server_assignor,
        topic_regex=topic_regex,
        topic_names=topic_names,
        client_id=info.client_id,
        client_host=info.client_host,
        classic=None,
    )


def _schedule(
    consumers: ConsumerGroups, group_id: str, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> None:
    schedule_session(consumers, group_id, new)
    if new is old:
        return
    if new.state is not MemberState.UNREVOKED_PARTITIONS:
        cancel_rebalance(consumers, group_id, new.member_id)
    elif (old.state, old.epoch, old.pending_revocation) != (new.state, new.epoch, new.pending_revocation):
        schedule_rebalance(consumers, group_id, new)


# -- checks that JoinGroup uses too


def check_size(consumers: ConsumerGroups, group: ConsumerGroup, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    limit = consumers.context.config.int("group.consumer.max.size")
    if len(group.members) >= limit and member_id not in group.members:
        raise ApiException(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum of {limit} members"
        )


def check_epoch(member: ConsumerGroupMember, epoch: int, reported: Reported | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is current, or the previous one because a response was lost."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_part_of(reported, member.assigned):
        return
    raise ApiException(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member's epoch is {member.epoch}, not {epoch}: it must abandon all its partitions and rejoin",
    )


def _is_part_of(reported: Reported | None, owned: Mapping[bytes, Mapping[int, int]]) -> bool:
    if reported is None:
        return False
    return all(
        topic_id in owned and owned[topic_id].keys() >= set(numbers) for topic_id, numbers in reported.items()
    )


def static_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    joins: bool,
    is_classic: bool,
    records: list[CoordinatorRecord],
) -> ConsumerGroupMember:
    """The member of an instance id. One that joins replaces the previous member, if that one has left."""
    known = group.static_member(instance_id)
    if not joins:
        if known is None:
            raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown")
        check_instance(known, member_id)
        return known
    if known is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    if not is_classic and not known.uses_classic_protocol and known.epoch != STATIC_LEAVE_EPOCH:
        raise ApiException(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join: the instance id is owned by "
            f"member {known.member_id}",
        )
    joining = replace(known, member_id=member_id, epoch=0, previous_epoch=0)
    group_id = group.group_id
    records += write.member_tombstones(group_id, known.member_id)
    records.append(write.member_subscription(group_id, joining))
    records.append(write.target_assignment(group_id, member_id, group.target.get(known.member_id, {})))
    records.append(write.current_assignment(group_id, joining))
    return joining
