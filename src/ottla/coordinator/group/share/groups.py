"""The share groups of one shard: their operations, their records, and their part in the shard's life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.context import GroupContext, Replay, RequestInfo
from ottla.coordinator.group.share import heartbeat as beats
from ottla.coordinator.group.share import offsets, records
from ottla.coordinator.group.share.describe import describe
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.heartbeat import HeartbeatAnswer
from ottla.coordinator.group.share.initialization import end_initialization
from ottla.coordinator.group.share.member import LEAVE_EPOCH, ShareGroupMember
from ottla.coordinator.group.share.offsets import Deletion, Reset
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta

Message = Any

_CLEAN_UP = "share groups: deleted topics"


class ShareGroups:
    """A `GroupModule`."""

    __slots__ = ("asked_at_ms", "context", "topic_hashes")

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.topic_hashes: dict[str, int] = {}
        self.asked_at_ms: dict[tuple[str, bytes], int] = {}
        """When share state was last asked for, by group and topic; not kept: a new coordinator asks again at once."""

    @property
    def retry_interval_ms(self) -> int:
        return self.context.config.int("group.share.initialize.retry.interval.ms")

    # -- operations

    def heartbeat(
        self, info: RequestInfo, request: Message, now_ms: int
    ) -> CoordinatorResult[HeartbeatAnswer]:
        """A ShareGroupHeartbeat that `heartbeat.validate` has let pass."""
        return beats.heartbeat(self, info, request, now_ms)

    def initialized(self, group_id: str, response: Message) -> CoordinatorResult[None]:
        """The share coordinator has answered a request for share state."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult([], None)
        for topic in response.results:
            self.asked_at_ms.pop((group_id, topic.topic_id), None)
        return end_initialization(group, response, self.context.image)

    def describe(self, group_id: str) -> Message:
        """A DescribedGroup. Raises GROUP_ID_NOT_FOUND."""
        return describe(self.group(group_id), self.context.image)

    def state_topics(self, group_id: str) -> dict[bytes, list[int]]:
        """The partitions that have share state; none where there is no such group."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return {}
        return {topic_id: sorted(numbers) for topic_id, numbers in group.initialized.items()}

    def reset_offsets(self, request: Message, now_ms: int) -> CoordinatorResult[Reset]:
        """AlterShareGroupOffsets: begin partitions of an empty group somewhere else."""
        group = self.group_for_join(request.group_id)
        return offsets.reset(group, request, self.context.image, now_ms, self.asked_at_ms)

    def begin_delete_offsets(self, request: Message) -> CoordinatorResult[Deletion]:
        """DeleteShareGroupOffsets, before the share state is deleted."""
        return offsets.begin_delete(self.group(request.group_id), request, self.context.image)

    def begin_delete(self, group_id: str) -> CoordinatorResult[Message | None]:
        """DeleteGroups, before the share state is deleted: the request to delete it, if there is any."""
        return offsets.begin_delete_all(self.group(group_id), self.context.image)

    def deleted_offsets(self, group_id: str, topic_ids: list[bytes]) -> CoordinatorResult[None]:
        """The share state of these topics is gone."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.state_partitions is None:
            return CoordinatorResult([], None)
        state = group.state_partitions.deletion_done(topic_ids)
        return CoordinatorResult([records.state_partitions(group_id, state)], None)

    # -- what the operations share

    def group(self, group_id: str) -> ShareGroup:
        return self.context.groups.get_as(ShareGroup, group_id)

    def group_for_join(self, group_id: str) -> ShareGroup:
        """The share group, new where there was no group by that id; raises GROUP_ID_NOT_FOUND for other types."""
        if self.context.groups.get(group_id) is None:
            return ShareGroup(group_id)
        return self.group(group_id)

    # -- the shard's life

    def on_loaded(self, now_ms: int) -> None:
        for group in self.context.groups:
            if isinstance(group, ShareGroup):
                beats.schedule_sessions(self, group)
        self._clean_up()

    def on_unloaded(self) -> None:
        """Nothing here waits for an answer."""

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        """Groups look at their topics again when one of their members comes."""
        names = {topic.name for topic in delta.changed_topics.values()}
        names |= {topic.name for topic in delta.deleted_topics.values()}
        for name in names:
            self.topic_hashes.pop(name, None)
            for group_id in self.context.groups.subscribed_to(name):
                group = self.context.groups.get(group_id)
                if isinstance(group, ShareGroup):
                    group.request_metadata_refresh()
        if delta.deleted_topics:
            self._clean_up()

    def _clean_up(self) -> None:
        if any(self._gone(group) for group in self.context.groups if isinstance(group, ShareGroup)):
            self.context.timers.schedule(_CLEAN_UP, 0, self._forget_deleted_topics)

    def _gone(self, group: ShareGroup) -> set[bytes]:
        if group.state_partitions is None:
            return set()
        return group.state_partitions.all_topics - self.context.image.topics.by_id.keys()

    def _forget_deleted_topics(self, now_ms: int) -> CoordinatorResult[None]:
        written = []
        for group in self.context.groups:
            if isinstance(group, ShareGroup) and group.state_partitions is not None:
                gone = self._gone(group)
                if gone:
                    state = group.state_partitions.without_topics(gone)
                    written.append(records.state_partitions(group.group_id, state))
        return CoordinatorResult(written, None)

    # -- replay

    def replays(self) -> Mapping[str, Replay]:
        return {
            "ShareGroupMetadataKey": self._replay_group,
            "ShareGroupMemberMetadataKey": self._replay_member,
            "ShareGroupTargetAssignmentMetadataKey": self._replay_target_epoch,
            "ShareGroupTargetAssignmentMemberKey": self._replay_target,
            "ShareGroupCurrentMemberAssignmentKey": self._replay_current,
            "ShareGroupStatePartitionMetadataKey": self._replay_state_partitions,
        }

    def _of(self, key: Message, value: Message | None) -> ShareGroup | None:
        """The group of a record; None for a tombstone whose group is gone."""
        groups = self.context.groups
        group = groups.get(key.group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        if group is not None:
            raise ApiException(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"a record of share group {key.group_id} follows records of a {group.type.value} group",
            )
        created = ShareGroup(key.group_id)
        groups.put(created)
        return created

    def _replay_group(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is None:
            return
        if value is None:
            self.context.groups.remove(key.group_id)
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash

    def _replay_member(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is None:
            return
        before = set(group.subscriptions)
        if value is None:
            group.remove_member(key.member_id)
        else:
            member = group.members.get(key.member_id) or ShareGroupMember(key.member_id)
            group.put_member(records.with_subscription(member, value))
        groups = self.context.groups
        for topic in before - group.subscriptions.keys():
            groups.unsubscribe(group.group_id, topic)
            if not groups.subscribed_to(topic):
                self.topic_hashes.pop(topic, None)
        for topic in group.subscriptions.keys() - before:
            groups.subscribe(group.group_id, topic)

    def _replay_target_epoch(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is not None:
            group.assignment_epoch = -1 if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = records.partitions_of(value)

    def _replay_current(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is None:
            return
        member = group.members.get(key.member_id)
        if value is not None:
            group.put_member(records.with_assignment(member or ShareGroupMember(key.member_id), value))
        elif member is not None:
            group.put_member(replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}))

    def _replay_state_partitions(self, key: Message, value: Message | None) -> None:
        group = self._of(key, value)
        if group is not None:
            group.state_partitions = None if value is None else records.state_partitions_of(value)
