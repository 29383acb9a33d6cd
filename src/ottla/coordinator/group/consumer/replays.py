"""Replay of the records of consumer groups, which alone changes their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import LEAVE_EPOCH, ConsumerGroupMember
from ottla.coordinator.group.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.group.context import Replay
from ottla.coordinator.group.group import GroupType
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.wire import messages


class Replays:
    """The replays of one shard, by the name of the key."""

    __slots__ = ("_consumers",)

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers

    def by_key(self) -> Mapping[str, Replay]:
        return {
            "ConsumerGroupMetadataKey": self._group,
            "ConsumerGroupPartitionMetadataKey": self._partition_metadata,
            "ConsumerGroupMemberMetadataKey": self._member,
            "ConsumerGroupTargetAssignmentMetadataKey": self._target_epoch,
            "ConsumerGroupTargetAssignmentMemberKey": self._target,
            "ConsumerGroupCurrentMemberAssignmentKey": self._current,
            "ConsumerGroupRegularExpressionKey": self._regex,
        }

    def _get(self, group_id: str, create: bool) -> ConsumerGroup | None:
        """The group of a record; None for a tombstone whose group is gone."""
        groups = self._consumers.context.groups
        group = groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not create:
            return None
        if group is not None and not (group.type is GroupType.CLASSIC and group.is_empty):
            raise ApiException(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"A record of consumer group {group_id} follows records of a {group.type.value} group",
            )
        # An empty classic group may exist only because offsets were committed: it has no records of its own.
        created = ConsumerGroup(GroupId(group_id))
        groups.put(created)
        return created

    def _group(
        self,
        key: messages.ConsumerGroupMetadataKey,
        value: messages.ConsumerGroupMetadataValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
            return
        if group.members or group.target or group.assignment_epoch != -1:
            raise _out_of_order(f"group {key.group_id} is deleted before its members and their target")
        self._consumers.context.groups.remove(key.group_id)

    def _partition_metadata(
        self,
        key: messages.ConsumerGroupPartitionMetadataKey,
        value: messages.ConsumerGroupPartitionMetadataValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _member(
        self,
        key: messages.ConsumerGroupMemberMetadataKey,
        value: messages.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        before = group.subscriptions.topics()
        known = group.members.get(key.member_id)
        if value is not None:
            member = known or ConsumerGroupMember(key.member_id)
            group.put_member(records.with_subscription(member, value))
            self._consumers.member_count += known is None
        elif known is not None:
            if known.epoch != LEAVE_EPOCH or key.member_id in group.target:
                raise _out_of_order(f"member {key.member_id} is deleted before its assignment")
            group.remove_member(key.member_id)
            self._consumers.member_count -= 1
        self._follow_topics(group, before)

    def _target_epoch(
        self,
        key: messages.ConsumerGroupTargetAssignmentMetadataKey,
        value: messages.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.assignment_epoch = value.assignment_epoch
            group.assignment_ms = value.assignment_timestamp
            return
        if group.target:
            raise _out_of_order(f"the target epoch of group {key.group_id} is deleted before the target")
        group.assignment_epoch = -1
        group.assignment_ms = 0

    def _target(
        self,
        key: messages.ConsumerGroupTargetAssignmentMemberKey,
        value: messages.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.target[key.member_id] = records.partitions_of(value)
        else:
            group.target.pop(key.member_id, None)

    def _current(
        self,
        key: messages.ConsumerGroupCurrentMemberAssignmentKey,
        value: messages.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        known = group.members.get(key.member_id)
        if value is not None:
            member = known or ConsumerGroupMember(key.member_id)
            self._consumers.member_count += known is None
            group.put_member(records.with_assignment(member, value))
        elif known is not None:
            group.put_member(
                replace(
                    known, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, pending_revocation={}
                )
            )

    def _regex(
        self,
        key: messages.ConsumerGroupRegularExpressionKey,
        value: messages.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        group = self._get(key.group_id, create=value is not None)
        if group is None:
            return
        before = group.subscriptions.topics()
        resolved = None
        if value is not None:
            resolved = ResolvedRegex(frozenset(map(TopicName, value.topics)), value.version, value.timestamp)
        group.subscriptions.resolve(key.regular_expression, resolved)
        self._follow_topics(group, before)

    def _follow_topics(self, group: ConsumerGroup, before: set[TopicName]) -> None:
        groups = self._consumers.context.groups
        now = group.subscriptions.topics()
        for topic in before - now:
            groups.unsubscribe(group.group_id, topic)
            if not groups.subscribed_to(topic):
                self._consumers.topic_hashes.pop(topic, None)
        for topic in now - before:
            groups.subscribe(group.group_id, topic)


def _out_of_order(what: str) -> ApiException:
    return ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Records are out of order: {what}")
