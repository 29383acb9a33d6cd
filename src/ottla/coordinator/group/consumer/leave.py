"""How members go: by leaving, by being fenced when a timer runs out, or for a while (static members)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

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

log = logging.getLogger(__name__)

Message = Any
R = TypeVar("R")


def leave(consumers: ConsumerGroups, request: Message, now_ms: int) -> CoordinatorResult[Message]:
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
    # Its place and its partitions wait for it, as of epoch 0 for whoever comes back under the instance id.
    gone = replace(
        member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={}, assigned=epochs_of(member.assigned, 0)
    )
    return CoordinatorResult([write.current_assignment(group.group_id, gone)], response)


def check_instance(member: ConsumerGroupMember, member_id: str) -> None:
    """Raise FENCED_INSTANCE_ID unless the static member is the one that asks."""
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
    """Take members out of the group; those that stay may make it a classic group."""
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
    log.info("group %s is in epoch %d: %s left", group.group_id, group.epoch + 1, ", ".join(gone))
    for member_id in gone:
        cancel_member_timers(consumers.context.timers, group.group_id, member_id)
    return CoordinatorResult(records, response)


# -- timers


def schedule_session(consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember) -> None:
    """The member's time until its next heartbeat starts again."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = settings.session_timeout_ms(consumers.context, group_id)
    _schedule(consumers, "session", group_id, member.member_id, timeout_ms, "its session has expired")


def schedule_rebalance(consumers: ConsumerGroups, group_id: str, member: ConsumerGroupMember) -> None:
    """The time in which the member has to give up what it was told to."""
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
    """A classic member was told to join again: the time in which it has to, counted from the first telling."""
    if not consumers.context.timers.is_scheduled(("consumer-join", group_id, member.member_id)):
        timeout_ms = member.rebalance_timeout_ms
        _schedule(consumers, "join", group_id, member.member_id, timeout_ms, "it did not join again in time")


def schedule_classic_sync(consumers: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int) -> None:
    """A classic member has joined: the time in which it has to ask for its assignment."""
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
        log.info("group %s: member %s is fenced, %s", group_id, member_id, reason)
        return fence(consumers, group, [member], None, now_ms)

    consumers.context.timers.schedule((f"consumer-{kind}", group_id, member_id), timeout_ms, expire)
