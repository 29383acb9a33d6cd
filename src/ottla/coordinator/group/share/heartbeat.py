"""ShareGroupHeartbeat: join a share group, stay in it, leave it, and learn the assignment.

A member joins with epoch 0, then repeats its epoch. A partition is assigned once its share state is initialized: the
first heartbeat requests that, and the heartbeat interval is short until it is done.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.group_config import group_setting
from ottla.coordinator.group.heartbeat_interval import heartbeat_interval_ms
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.group.share import records as write
from ottla.coordinator.group.share.assignor import assign
from ottla.coordinator.group.share.group import ShareGroup, session_timer
from ottla.coordinator.group.share.initialization import StateRequests, begin_initialization
from ottla.coordinator.group.share.member import JOIN_EPOCH, LEAVE_EPOCH, Partitions, ShareGroupMember
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.share.groups import ShareGroups

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response, and the request for share state that is sent once the records are committed."""

    response: messages.ShareGroupHeartbeatResponse
    initialize: messages.InitializeShareGroupStateRequest | None = None


def validate(request: messages.ShareGroupHeartbeatRequest) -> None:
    """Check a heartbeat without its group; raises INVALID_REQUEST."""
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise ApiException(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."
            )
    elif request.member_epoch < LEAVE_EPOCH:
        raise ApiException(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def heartbeat(
    shares: ShareGroups, info: RequestInfo, request: messages.ShareGroupHeartbeatRequest, now_ms: int
) -> CoordinatorResult[HeartbeatResult]:
    """Run a valid request."""
    if request.member_epoch == LEAVE_EPOCH:
        return _leave(shares, request)
    joins = request.member_epoch == JOIN_EPOCH
    records: list[CoordinatorRecord] = []
    group = shares.group_for_join(request.group_id) if joins else shares.group(request.group_id)
    _check_size(shares, group, request.member_id)
    member = group.members.get(request.member_id) if joins else group.member(request.member_id)
    member = member or ShareGroupMember(request.member_id)
    _check_epoch(member, request.member_epoch)

    update = _Update(shares, group, member, _with_request(member, info, request), now_ms, records)
    bumped = update.subscribe()
    update.assign()
    update.reconcile(bumped)
    _schedule_session(shares, group.group_id, request.member_id)
    initialize = begin_initialization(
        group,
        update.topics,
        update.epoch,
        shares.context.image,
        records,
        now_ms,
        StateRequests(shares.requested_ms, shares.retry_interval_ms),
    )
    settled = initialize is None and not group.waits_for_state and update.target_epoch >= update.epoch
    new = update.new
    with_assignment = joins or request.subscribed_topic_names is not None or new.assigned != member.assigned
    response = messages.ShareGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            shares.context, GroupType.SHARE, group.group_id, len(group.members), settled
        ),
        assignment=_assignment(new.assigned) if with_assignment else None,
    )
    return CoordinatorResult(records, HeartbeatResult(response, initialize))


class _Update:
    """A member's heartbeat, step by step. It changes no state; `records` collects the changes."""

    __slots__ = (
        "epoch",
        "group",
        "new",
        "now_ms",
        "old",
        "records",
        "shares",
        "target",
        "target_epoch",
        "topics",
    )

    def __init__(
        self,
        shares: ShareGroups,
        group: ShareGroup,
        old: ShareGroupMember,
        new: ShareGroupMember,
        now_ms: int,
        records: list[CoordinatorRecord],
    ) -> None:
        self.shares = shares
        self.group = group
        self.old = old
        self.new = new
        self.now_ms = now_ms
        self.records = records
        self.epoch = group.epoch
        self.target_epoch = group.assignment_epoch
        self.target: Partitions = group.target.get(new.member_id, {})
        self.topics = set(group.subscriptions_after(group.members.get(new.member_id), new))

    def subscribe(self) -> bool:
        """Write the member's metadata; start a new epoch if that, the topics or their share state changed."""
        group = self.group
        if self.new != self.old or self.new.member_id not in group.members:
            self.records.append(write.member_subscription(group.group_id, self.new))
        bump = self.new.topic_names != self.old.topic_names
        if group.assignment_epoch >= group.epoch:
            bump = bump or group.has_unassigned_state
        if not bump and not group.metadata_expired(self.now_ms):
            return False
        hashed = metadata_hash(self.topics, self.shares.context.image, self.shares.topic_hashes)
        bump = bump or hashed != group.metadata_hash
        if bump:
            self.epoch += 1
            self.records.append(write.group_epoch(group.group_id, self.epoch, hashed))
            _logger.info("Share group %s is in epoch %d", group.group_id, self.epoch)
        group.refreshed(self.now_ms, self.epoch)
        return bump

    def assign(self) -> None:
        """Compute a new target if the group has a newer epoch, unless the last target is too recent."""
        group = self.group
        if group.assignment_epoch >= self.epoch or not self._may_assign():
            return
        members = {**group.members, self.new.member_id: self.new}
        topics = self.shares.context.image.topics
        subscriptions = {
            member_id: {topics.by_name[name].id for name in member.topic_names if name in topics.by_name}
            for member_id, member in members.items()
        }
        partitions = {
            topic_id: numbers & topics.by_id[topic_id].partitions.keys()
            for topic_id, numbers in group.initialized.items()
            if topic_id in topics.by_id
        }
        assignment = assign(subscriptions, partitions, group.target)
        for member_id, assigned in assignment.items():
            if group.target.get(member_id) != assigned:
                self.records.append(write.target_assignment(group.group_id, member_id, assigned))
        self.records.append(write.target_epoch(group.group_id, self.epoch, self.now_ms))
        self.target = assignment[self.new.member_id]
        self.target_epoch = self.epoch

    def _may_assign(self) -> bool:
        group = self.group
        interval_ms = group_setting(self.shares.context, group.group_id, "group.share.assignment.interval.ms")
        if not interval_ms or not group.assignment_ms:
            return True
        elapsed = not group.assigned_recently(interval_ms, self.now_ms)
        if any(group.target.values()):
            return elapsed
        # No member has partitions that could be taken away again: there is no need to wait for others. But partitions
        # that are about to get their share state would need another target, in another epoch.
        return not self._lacks_state() or (elapsed and self._has_state())

    def _lacks_state(self) -> bool:
        """Whether partitions of the topics have no share state yet."""
        topics, initialized = self.shares.context.image.topics.by_name, self.group.initialized
        return any(
            not topics[name].partitions.keys() <= initialized.get(topics[name].id, frozenset())
            for name in self.topics
            if name in topics
        )

    def _has_state(self) -> bool:
        """Whether there are partitions of the topics that can be assigned."""
        topics = self.shares.context.image.topics.by_name
        return any(name in topics and self.group.initialized.get(topics[name].id) for name in self.topics)

    def reconcile(self, subscription_changed: bool) -> None:
        """Give the member its target at once, since partitions are shared."""
        if self.new.epoch == self.target_epoch and not subscription_changed:
            return
        topics = self.shares.context.image.topics.by_name
        subscribed = {topics[name].id for name in self.new.topic_names if name in topics}
        assigned = {topic_id: numbers for topic_id, numbers in self.target.items() if topic_id in subscribed}
        before = self.new
        if before.epoch == self.target_epoch:
            self.new = replace(before, assigned=assigned)
        else:
            self.new = replace(
                before, epoch=self.target_epoch, previous_epoch=before.epoch, assigned=assigned
            )
        if self.new != before:
            self.records.append(write.current_assignment(self.group.group_id, self.new))


# -- leaving


def _leave(
    shares: ShareGroups, request: messages.ShareGroupHeartbeatRequest
) -> CoordinatorResult[HeartbeatResult]:
    group = shares.group(request.group_id)
    response = messages.ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    return CoordinatorResult(
        _fence(shares, group, group.member(request.member_id)), HeartbeatResult(response)
    )


def _fence(shares: ShareGroups, group: ShareGroup, member: ShareGroupMember) -> list[CoordinatorRecord]:
    after = group.subscriptions_after(member, None)
    hashed = metadata_hash(after, shares.context.image, shares.topic_hashes)
    shares.context.timers.cancel(session_timer(group.group_id, member.member_id))
    return [
        *write.member_tombstones(group.group_id, member.member_id),
        write.group_epoch(group.group_id, group.epoch + 1, hashed),
    ]


def _schedule_session(shares: ShareGroups, group_id: str, member_id: str) -> None:
    def expire(now_ms: int) -> CoordinatorResult[None]:
        group = shares.context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if member is None or not isinstance(group, ShareGroup):
            return CoordinatorResult([], None)
        _logger.info("Share group %s: fenced member %s, its session has expired", group_id, member_id)
        return CoordinatorResult(_fence(shares, group, member), None)

    timeout_ms = group_setting(shares.context, group_id, "group.share.session.timeout.ms")
    shares.context.timers.schedule(session_timer(group_id, member_id), timeout_ms, expire)


def schedule_sessions(shares: ShareGroups, group: ShareGroup) -> None:
    """The group was loaded: start the session timeouts of its members."""
    for member_id in group.members:
        _schedule_session(shares, group.group_id, member_id)


# -- checks and conversions


def _check_size(shares: ShareGroups, group: ShareGroup, member_id: str) -> None:
    limit = shares.context.config.int("group.share.max.size")
    if len(group.members) >= limit and member_id not in group.members:
        raise ApiException(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group has reached its maximum of {limit} members"
        )


def _check_epoch(member: ShareGroupMember, epoch: int) -> None:
    if epoch in (JOIN_EPOCH, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch):
        return
    raise ApiException(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member's epoch is {member.epoch}, not {epoch}: it must abandon all its partitions and rejoin",
    )


def _with_request(
    member: ShareGroupMember, info: RequestInfo, request: messages.ShareGroupHeartbeatRequest
) -> ShareGroupMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if names is None else frozenset(names),
        client_id=info.client_id,
        client_host=info.client_host,
    )


def _assignment(assigned: Partitions) -> messages.ShareGroupHeartbeatResponse.Assignment:
    response = messages.ShareGroupHeartbeatResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in assigned.items()
        ]
    )
