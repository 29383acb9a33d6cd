"""A share group: its members, their targets, and the partitions with share state. Only replay changes it."""

from __future__ import annotations

from collections import Counter

from ottla.coordinator.group.group import CommitPartitionValidator, ExpiryBase, GroupType
from ottla.coordinator.group.modern_group import ModernGroup
from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.member import Partitions, ShareGroupMember
from ottla.coordinator.group.share.state_partitions import StatePartitions
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.timers import Timers
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName


class ShareGroup(ModernGroup[ShareGroupMember]):
    """One share group."""

    __slots__ = ("state_partitions", "subscriptions", "target")

    type = GroupType.SHARE

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.subscriptions: Counter[TopicName] = Counter()
        """How many members subscribe to a topic."""
        self.target: dict[str, Partitions] = {}
        self.state_partitions: StatePartitions | None = None

    # -- Group

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def protocol_type(self) -> str:
        return "share"

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.subscriptions

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        is_transactional: bool,
    ) -> CommitPartitionValidator | None:
        raise self._no_consumer_group()

    def validate_offset_fetch(self, member_id: str, epoch: int) -> None:
        raise self._no_consumer_group()

    def validate_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def _no_consumer_group(self) -> ApiException:
        return ApiException(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {self.group_id} is a share group: it has no committed offsets",
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, self.members)

    def expiry_base(self) -> ExpiryBase | None:
        return None

    @property
    def should_expire(self) -> bool:
        return False

    def cancel_timers(self, timers: Timers) -> None:
        for member_id in self.members:
            timers.cancel(session_timer(self.group_id, member_id))

    # -- members

    def subscriptions_after(
        self, old: ShareGroupMember | None, new: ShareGroupMember | None
    ) -> Counter[TopicName]:
        """The subscriptions if `new` replaces `old`."""
        after = self.subscriptions.copy()
        _replace(after, old, new)
        return after

    def put_member(self, member: ShareGroupMember) -> None:
        _replace(self.subscriptions, self.members.get(member.member_id), member)
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        _replace(self.subscriptions, self.members.pop(member_id, None), None)

    # -- share state

    @property
    def initialized(self) -> Partitions:
        """Partitions that may be assigned."""
        if self.state_partitions is None:
            return {}
        return {topic_id: topic.partitions for topic_id, topic in self.state_partitions.initialized.items()}

    @property
    def waits_for_state(self) -> bool:
        """Whether share state was requested and is not initialized yet."""
        return self.state_partitions is not None and bool(self.state_partitions.initializing)

    @property
    def has_unassigned_state(self) -> bool:
        """Whether partitions of subscribed topics have share state but are not assigned."""
        if self.state_partitions is None or not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for partitions in self.target.values():
            for topic_id, numbers in partitions.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        return any(
            assigned.get(topic_id, set()) != topic.partitions
            for topic_id, topic in self.state_partitions.initialized.items()
            if topic.name in self.subscriptions
        )


def session_timer(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("share-session", group_id, member_id)


def _replace(
    subscriptions: Counter[TopicName], old: ShareGroupMember | None, new: ShareGroupMember | None
) -> None:
    if old is not None:
        for topic in old.topic_names:
            subscriptions[topic] -= 1
            if not subscriptions[topic]:
                del subscriptions[topic]
    if new is not None:
        subscriptions.update(new.topic_names)
