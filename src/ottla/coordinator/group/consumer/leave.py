"""Members that leave: by request, fenced after a timeout, or temporarily (static members)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.group import ConsumerGroup, cancel_member_timers
from ottla.coordinator.group.consumer.member import STATIC_LEAVE_EPOCH, ConsumerGroupMember, epochs_of
from ottla.coordinator.group.consumer.migration import downgrade, may_downgrade_without
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups

_logger = logging.getLogger(__name__)

R = TypeVar("R")


def leave(
    consumers: ConsumerGroups, request: messages.ConsumerGroupHeartbeatRequest, now_ms: int
) -> CoordinatorResult[messages.ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat with epoch -1 or -2."""
    group = consumers.group(request.group_id)
    response = messages.ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    if request.instance_id is None:
        return fence(consumers, group, [group.member(request.member_id)], response, now_ms)
    member = group.static_member(request.instance_id)
    if member is None:
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown")
    check_instance(member, request.member_id)
    if request.member_epoch != STATIC_LEAVE_EPOCH:
        return fence(consumers, group, [member], response, now_ms)
    # Its partitions are kept, with epoch 0, for the member that returns with the instance id.
    gone = replace(
        member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={}, assigned=epochs_of(member.assigned, 0)
    )
    return CoordinatorResult([write.current_assignment(group.group_id, gone)], response)


def check_instance(member: ConsumerGroupMember, member_id: str) -> None:
    """Raise FENCED_INSTANCE_ID unless the static member has this member id."""
    if member.member_id != member_id:
        raise ApiException(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} was fenced by member {member.member_id}",
        )


def fence(
    consumers: ConsumerGroups,
    group: ConsumerGroup,
    members: Iterable[ConsumerGroupMember],
    response: R,
    now_ms: int,
) -> CoordinatorResult[R]:
    """Remove members from the group; if only classic members stay, it may become a classic group."""
    gone = {member.member_id: member for member in members}
    if not gone:
        return CoordinatorResult([], response)
    if may_downgrade_without(consumers, group, gone.values()):
        records, committed = downgrade(consumers, group, now_ms, leaving=gone)
        return CoordinatorResult(records, response, on_committed=committed)
    records = []
    after = group.subscriptions.copy()
    for member in gone.values():
        records += write.member_tombstones(group.group_id, member.member_id)
        after.replace(member, None)
    for regex in after.forget_unused_regexes():
        records.append(write.regular_expression_tombstone(group.group_id, regex))
    hashed = metadata_hash(after.topics(), consumers.context.image, consumers.topic_hashes)
    records.append(write.group_epoch(group.group_id, group.epoch + 1, hashed))
    _logger.info("group %s is in epoch %d: %s left", group.group_id, group.epoch + 1, ", ".join(gone))
    for member_id in gone:
        cancel_member_timers(consumers.context.timers, group.group_id, member_id)
    return CoordinatorResult(records, response)


# -- timers


def schedule_session(consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember) -> None:
    """Restart the member's session timeout."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = settings.session_timeout_ms(consumers.context, group_id)
    _schedule(consumers, "session", group_id, member.member_id, timeout_ms, "its session has expired")


def schedule_rebalance(consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember) -> None:
    """Start the timeout within which the member has to revoke partitions."""
    epoch = member.epoch
    _schedule(
        consumers,
        "rebalance",
        group_id,
        member.member_id,
        member.rebalance_timeout_ms,
        f"it did not leave epoch {epoch} within {member.rebalance_timeout_ms} ms",
        still_due=lambda now: now.epoch == epoch,
    )


def cancel_rebalance(consumers: ConsumerGroups, group_id: str, member_id: str) -> None:
    consumers.context.timers.cancel(("consumer-rebalance", group_id, member_id))


def schedule_classic_join(consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember) -> None:
    """Start the timeout within which a classic member has to rejoin, counted from the first request to do so."""
    if not consumers.context.timers.is_scheduled(("consumer-join", group_id, member.member_id)):
        timeout_ms = member.rebalance_timeout_ms
        _schedule(consumers, "join", group_id, member.member_id, timeout_ms, "it did not join again in time")


def schedule_classic_sync(consumers: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int) -> None:
    """Start the timeout within which a classic member that has joined has to send SyncGroup."""
    _schedule(consumers, "sync", group_id, member_id, timeout_ms, "it did not sync in time")


def _schedule(
    consumers: ConsumerGroups,
    kind: str,
    group_id: str,
    member_id: str,
    timeout_ms: int,
    reason: str,
    still_due: Callable[[ConsumerGroupMember], bool] = lambda _: True,
) -> None:
    def expire(now_ms: int) -> CoordinatorResult[None]:
        group = consumers.context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or not still_due(member):
            return CoordinatorResult([], None)
        assert isinstance(group, ConsumerGroup)
        _logger.info("group %s: member %s is fenced, %s", group_id, member_id, reason)
        return fence(consumers, group, [member], None, now_ms)

    consumers.context.timers.schedule((f"consumer-{kind}", group_id, member_id), timeout_ms, expire)
