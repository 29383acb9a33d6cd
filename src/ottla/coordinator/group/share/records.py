"""The records of share groups in `__consumer_offsets`, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, cast

from ottla.coordinator.group import modern_records
from ottla.coordinator.group.modern_records import ModernRecords
from ottla.coordinator.group.share.member import Partitions, ShareGroupMember
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions, Topics
from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import TopicName
from ottla.wire import messages

_STABLE: Final = 0

_RECORDS: Final = ModernRecords(
    messages.ShareGroupCurrentMemberAssignmentKey,
    messages.ShareGroupTargetAssignmentMemberKey,
    messages.ShareGroupMemberMetadataKey,
    messages.ShareGroupTargetAssignmentMetadataKey,
    messages.ShareGroupTargetAssignmentMetadataValue,
)
target_epoch = _RECORDS.target_epoch
member_tombstones = _RECORDS.member_tombstones


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ShareGroupMetadataKey(group_id=group_id),
        messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_subscription(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        messages.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
        ),
    )


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    value = messages.ShareGroupTargetAssignmentMemberValue
    key = messages.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return modern_records.target_assignment(key, value, value.TopicPartition, partitions)


def current_assignment(group_id: str, member: ShareGroupMember) -> CoordinatorRecord:
    value = messages.ShareGroupCurrentMemberAssignmentValue
    return CoordinatorRecord(
        messages.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        value(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=_STABLE,
            assigned_partitions=[
                value.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in member.assigned.items()
            ],
        ),
    )


def state_partitions(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    value = messages.ShareGroupStatePartitionMetadataValue

    def topics(kept: Topics) -> list[messages.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
        return [
            value.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
            )
            for topic_id, topic in kept.items()
        ]

    return CoordinatorRecord(
        messages.ShareGroupStatePartitionMetadataKey(group_id=group_id),
        value(
            initializing_topics=topics(state.initializing),
            initialized_topics=topics(state.initialized),
            deleting_topics=[
                value.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in state.deleting.items()
            ],
        ),
    )


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """All records of a group and of the members that it still has."""
    return [
        *(record for member_id in member_ids for record in member_tombstones(group_id, member_id)),
        *modern_records.group_tombstones(
            group_id,
            (
                messages.ShareGroupTargetAssignmentMetadataKey,
                messages.ShareGroupStatePartitionMetadataKey,
                messages.ShareGroupMetadataKey,
            ),
        ),
    ]


# -- reading


def with_subscription(
    member: ShareGroupMember, value: messages.ShareGroupMemberMetadataValue
) -> ShareGroupMember:
    """The member with the fields that its metadata record sets."""
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(cast("list[TopicName]", value.subscribed_topic_names)),
    )


def with_assignment(
    member: ShareGroupMember, value: messages.ShareGroupCurrentMemberAssignmentValue
) -> ShareGroupMember:
    """The member with the fields that its current assignment record sets."""
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
    )


def partitions_of(value: messages.ShareGroupTargetAssignmentMemberValue) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def state_partitions_of(value: messages.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    def topics(
        kept: Iterable[messages.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo],
    ) -> Topics:
        return {
            topic.topic_id: TopicPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in kept
        }

    return StatePartitions(
        topics(value.initializing_topics),
        topics(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )
