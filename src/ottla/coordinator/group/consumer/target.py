"""The target assignment of a group: runs the assignor, and writes what differs from the last target."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import Assignor
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerGroupMember, Partitions
from ottla.coordinator.group.consumer.spec import GroupSpec, MemberSpec
from ottla.coordinator.group.consumer.subscriptions import Subscriptions
from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import TopicName
from ottla.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """A new target and its records."""

    records: list[CoordinatorRecord]
    assignment: dict[str, Partitions]


def compute_target(
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    subscriptions: Subscriptions,
    *,
    assignor: Assignor,
    epoch: int,
    image: MetadataImage,
    now_ms: int,
) -> TargetAssignment:
    """Assign the group with `member` added or updated and with these subscriptions."""
    members = dict(group.members)
    replaced = group.static_member(member.instance_id)
    had = group.target.get(member.member_id, {})
    if replaced is not None and replaced.member_id != member.member_id:
        del members[replaced.member_id]
        had = group.target.get(replaced.member_id, {})
    members[member.member_id] = member

    topic_ids = _TopicIds(subscriptions, image)
    specs = {
        member_id: MemberSpec(
            topic_ids.of(one),
            had if member_id == member.member_id else group.target.get(member_id, {}),
            one.instance_id,
        )
        for member_id, one in members.items()
    }
    spec = GroupSpec(specs, subscriptions.type_of(len(members)), topic_ids.partition_counts)
    assignment = assignor(spec)
    changed = [
        records.target_assignment(group.group_id, member_id, assignment[member_id])
        for member_id in specs
        if group.target.get(member_id) != assignment[member_id]
    ]
    changed.append(records.target_epoch(group.group_id, epoch, now_ms))
    return TargetAssignment(changed, assignment)


def subscribed_topic_ids(names: Set[TopicName], image: MetadataImage) -> frozenset[bytes]:
    """The ids of those topics that exist."""
    topics = image.topics.by_name
    return frozenset(topics[name].id for name in names if name in topics)


class _TopicIds:
    """Subscriptions by topic id. Members with the same subscription share one set."""

    __slots__ = ("_image", "_known", "_subscriptions", "partition_counts")

    def __init__(self, subscriptions: Subscriptions, image: MetadataImage) -> None:
        self._subscriptions = subscriptions
        self._image = image
        self._known: dict[tuple[frozenset[TopicName], str], frozenset[bytes]] = {}
        self.partition_counts: dict[bytes, int] = {}

    def of(self, member: ConsumerGroupMember) -> frozenset[bytes]:
        key = (member.topic_names, member.topic_regex)
        topic_ids = self._known.get(key)
        if topic_ids is None:
            topic_ids = subscribed_topic_ids(self._subscriptions.topics_of(member), self._image)
            for topic_id in topic_ids:
                self.partition_counts[topic_id] = len(self._image.topics.by_id[topic_id].partitions)
            self._known[key] = topic_ids
        return topic_ids
