"""The share groups of one shard: their operations and their replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.context import GroupContext, Replay, RequestInfo
from ottla.coordinator.group.share import heartbeat as beats
from ottla.coordinator.group.share import offsets, records
from ottla.coordinator.group.share.describe import describe
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.heartbeat import HeartbeatResult
from ottla.coordinator.group.share.initialization import end_initialization
from ottla.coordinator.group.share.member import LEAVE_EPOCH, ShareGroupMember
from ottla.coordinator.group.share.offsets import Deletion, Reset
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.wire import messages
    from ottla.wire.classes import WireMessage

_CLEAN_UP = "share groups: deleted topics"


class ShareGroups:
    """A `GroupModule`."""

    __slots__ = ("context", "requested_ms", "topic_hashes")

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.topic_hashes: dict[str, int] = {}
        self.requested_ms: dict[tuple[str, bytes], int] = {}
        """When share state was last requested, by group and topic. A new coordinator requests it again."""

    @property
    def retry_interval_ms(self) -> int:
        return self.context.config.int("group.share.initialize.retry.interval.ms")

    # -- operations

    def heartbeat(
        self, info: RequestInfo, request: messages.ShareGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[HeartbeatResult]:
        """A ShareGroupHeartbeat that `heartbeat.validate` has accepted."""
        return beats.heartbeat(self, info, request, now_ms)

    def initialized(
        self, group_id: str, response: messages.InitializeShareGroupStateResponse
    ) -> CoordinatorResult[None]:
        """The share coordinator has responded to a request for share state."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult([], None)
        for topic in response.results:
            self.requested_ms.pop((group_id, topic.topic_id), None)
        return end_initialization(group, response, self.context.image)

    def describe(self, group_id: GroupId) -> messages.ShareGroupDescribeResponse.DescribedGroup:
        """A DescribedGroup. Raises GROUP_ID_NOT_FOUND."""
        return describe(self.group(group_id), self.context.image)

    def state_topics(self, group_id: str) -> dict[bytes, list[int]]:
        """The partitions that have share state; none where there is no such group."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return {}
        return {topic_id: sorted(numbers) for topic_id, numbers in group.initialized.items()}

    def reset_offsets(
        self, request: messages.AlterShareGroupOffsetsRequest, now_ms: int
    ) -> CoordinatorResult[Reset]:
        """AlterShareGroupOffsets: restart partitions of an empty group at other offsets."""
        group = self.group_for_join(request.group_id)
        return offsets.reset(group, request, self.context.image, now_ms, self.requested_ms)

    def begin_delete_offsets(
        self, request: messages.DeleteShareGroupOffsetsRequest
    ) -> CoordinatorResult[Deletion]:
        """DeleteShareGroupOffsets, before the share state is deleted."""
        return offsets.begin_delete(self.group(request.group_id), request, self.context.image)

    def begin_delete(self, group_id: str) -> CoordinatorResult[messages.DeleteShareGroupStateRequest | None]:
        """DeleteGroups, before the share state is deleted: the request to delete it, if there is any."""
        return offsets.begin_delete_all(self.group(group_id), self.context.image)

    def deleted_offsets(self, group_id: str, topic_ids: list[bytes]) -> CoordinatorResult[None]:
        """The share state of these topics was deleted."""
        group = self.context.groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.state_partitions is None:
            return CoordinatorResult([], None)
        state = group.state_partitions.deletion_done(topic_ids)
        return CoordinatorResult([records.state_partitions(group_id, state)], None)

    # -- used by the operations

    def group(self, group_id: str) -> ShareGroup:
        return self.context.groups.get_as(ShareGroup, group_id)

    def group_for_join(self, group_id: GroupId) -> ShareGroup:
        """The share group, a new one if the id is unknown; raises GROUP_ID_NOT_FOUND for other types."""
        if self.context.groups.get(group_id) is None:
            return ShareGroup(group_id)
        return self.group(group_id)

    # -- GroupModule

    def on_loaded(self, now_ms: int) -> None:
        for group in self.context.groups:
            if isinstance(group, ShareGroup):
                beats.schedule_sessions(self, group)
        self._clean_up()

    def on_unloaded(self) -> None:
        """No request waits here."""

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        """Groups check their topics again at the next heartbeat of a member."""
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

    def _of(self, group_id: str, value: WireMessage | None) -> ShareGroup | None:
        """The group of a record; None for a tombstone whose group is gone."""
        groups = self.context.groups
        group = groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        if group is not None:
            raise ApiException(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"A record of share group {group_id} follows records of a {group.type.value} group",
            )
        created = ShareGroup(GroupId(group_id))
        groups.put(created)
        return created

    def _replay_group(
        self,
        key: messages.ShareGroupMetadataKey,
        value: messages.ShareGroupMetadataValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
        if group is None:
            return
        if value is None:
            self.context.groups.remove(key.group_id)
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash

    def _replay_member(
        self,
        key: messages.ShareGroupMemberMetadataKey,
        value: messages.ShareGroupMemberMetadataValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
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

    def _replay_target_epoch(
        self,
        key: messages.ShareGroupTargetAssignmentMetadataKey,
        value: messages.ShareGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
        if group is not None:
            group.assignment_epoch = -1 if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(
        self,
        key: messages.ShareGroupTargetAssignmentMemberKey,
        value: messages.ShareGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = records.partitions_of(value)

    def _replay_current(
        self,
        key: messages.ShareGroupCurrentMemberAssignmentKey,
        value: messages.ShareGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
        if group is None:
            return
        member = group.members.get(key.member_id)
        if value is not None:
            group.put_member(records.with_assignment(member or ShareGroupMember(key.member_id), value))
        elif member is not None:
            group.put_member(replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}))

    def _replay_state_partitions(
        self,
        key: messages.ShareGroupStatePartitionMetadataKey,
        value: messages.ShareGroupStatePartitionMetadataValue | None,
    ) -> None:
        group = self._of(key.group_id, value)
        if group is not None:
            group.state_partitions = None if value is None else records.state_partitions_of(value)
