"""The consumer groups of one shard: their operations and their replay.

`heartbeat.py`, `leave.py`, `classic_members.py` and `migration.py` have the steps of each operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.consumer import settings
from ottla.coordinator.group.consumer.classic_members import ClassicProtocolMembers
from ottla.coordinator.group.consumer.describe import describe
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.heartbeat import heartbeat
from ottla.coordinator.group.consumer.leave import schedule_rebalance, schedule_session
from ottla.coordinator.group.consumer.member import MemberState
from ottla.coordinator.group.consumer.migration import upgrade
from ottla.coordinator.group.consumer.replays import Replays
from ottla.coordinator.group.context import GroupContext, Replay, RequestInfo
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.ids import GroupId
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.wire.messages import (
        ConsumerGroupDescribeResponse,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )


class ConsumerGroups:
    """A `GroupModule`."""

    __slots__ = ("_classic", "_replays", "context", "member_count", "topic_hashes", "topics_created_at")

    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self.context = context
        self._classic = classic
        classic.consumer_members = ClassicProtocolMembers(self)
        self._replays = Replays(self).by_key()
        self.topic_hashes: dict[str, int] = {}
        self.topics_created_at = -1
        """The offset of the metadata image that last had new topics."""
        self.member_count = 0
        """Members of all consumer groups of the shard."""

    # -- operations

    def heartbeat(
        self, info: RequestInfo, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """A ConsumerGroupHeartbeat that `heartbeat.validate` has accepted."""
        return heartbeat(self, info, request, now_ms)

    def describe(self, group_id: GroupId) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """A DescribedGroup. Raises GROUP_ID_NOT_FOUND."""
        default = settings.assignor_names(self.context.config)[0]
        return describe(self.group(group_id), default, self.context.image)

    # -- used by the operations

    def group(self, group_id: str) -> ConsumerGroup:
        return self.context.groups.get_as(ConsumerGroup, group_id)

    def group_for_join(self, group_id: GroupId, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group that a member of the consumer protocol joins: a new one, or one in place of a classic group."""
        group = self.context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None:
            if not isinstance(group, ClassicGroup):
                return self.group(group_id)
            if not group.is_empty:
                return upgrade(self, group, records)
            records += group.tombstones()
            group.cancel_timers(self.context.timers)
        return ConsumerGroup(group_id)

    def new_member_id(self) -> str:
        return uuid_to_str(self.context.clock.random_uuid())

    def adopt_classic(self, group: ClassicGroup, now_ms: int, rebalance: bool) -> None:
        """A group has become a classic one, and its record was replayed: restore what records do not keep."""
        loaded = self.context.groups.get(group.group_id)
        if not isinstance(loaded, ClassicGroup) or loaded.state_name != group.state_name:
            return
        self.context.groups.put(group)
        rebalances = self._classic.rebalances
        for member in group.members.values():
            rebalances.reschedule_session_timeout(group, member)
        if rebalance:
            rebalances.prepare(group, now_ms)

    # -- GroupModule

    def replays(self) -> Mapping[str, Replay]:
        return self._replays

    def on_loaded(self, now_ms: int) -> None:
        self.topics_created_at = self.context.image.offset
        for group in self.context.groups:
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    schedule_session(self, group.group_id, member)
                    if member.state is MemberState.UNREVOKED_PARTITIONS:
                        schedule_rebalance(self, group.group_id, member)

    def on_unloaded(self) -> None:
        """No request waits here."""

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        """Groups check their topics again at the next heartbeat of a member."""
        if any(topic.is_new for topic in delta.changed_topics.values()):
            self.topics_created_at = self.context.image.offset
        names = {topic.name for topic in delta.changed_topics.values()}
        names |= {topic.name for topic in delta.deleted_topics.values()}
        for name in names:
            self.topic_hashes.pop(name, None)
            for group_id in self.context.groups.subscribed_to(name):
                group = self.context.groups.get(group_id)
                if group is not None:
                    group.request_metadata_refresh()
