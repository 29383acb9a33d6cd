"""The records of consumer groups in `__consumer_offsets`, as Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, cast

from ottla.coordinator.group import modern_records
from ottla.coordinator.group.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from ottla.coordinator.group.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.group.modern_records import ModernRecords
from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import TopicName
from ottla.wire import messages

_RECORDS: Final = ModernRecords(
    messages.ConsumerGroupCurrentMemberAssignmentKey,
    messages.ConsumerGroupTargetAssignmentMemberKey,
    messages.ConsumerGroupMemberMetadataKey,
    messages.ConsumerGroupTargetAssignmentMetadataKey,
    messages.ConsumerGroupTargetAssignmentMetadataValue,
)
target_epoch = _RECORDS.target_epoch
member_tombstones = _RECORDS.member_tombstones


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupMetadataKey(group_id=group_id),
        messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Deletes a record of the subscribed topics that Kafka before 4.1 wrote; the group's hash replaces it."""
    return CoordinatorRecord(messages.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_subscription(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    value = messages.ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        classic = value.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                value.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.classic.protocols
            ],
        )
    return CoordinatorRecord(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=classic,
        ),
    )


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    value = messages.ConsumerGroupTargetAssignmentMemberValue
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return modern_records.target_assignment(key, value, value.TopicPartition, partitions)


def current_assignment(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        messages.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_with_epochs(member.assigned),
            partitions_pending_revocation=_with_epochs(member.pending_revocation),
        ),
    )


def regular_expression(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        messages.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_ms
        ),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """All records of a group, in the order in which replay needs them."""
    return [
        *_RECORDS.members_tombstones(group_id, member_ids),
        *(regular_expression_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# -- reading


def partitions_of(value: messages.ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    """The partitions in a target assignment record."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def with_subscription(
    member: ConsumerGroupMember, value: messages.ConsumerGroupMemberMetadataValue
) -> ConsumerGroupMember:
    """The member with the fields that its metadata record sets."""
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(cast("list[TopicName]", value.subscribed_topic_names)),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple(
                ClassicProtocol(protocol.name, bytes(protocol.metadata))
                for protocol in classic.supported_protocols
            ),
        ),
    )


def with_assignment(
    member: ConsumerGroupMember, value: messages.ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerGroupMember:
    """The member with the fields that its current assignment record sets."""
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


_TopicPartitions = messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


def _with_epochs(owned: OwnedPartitions) -> list[_TopicPartitions]:
    return [
        _TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


def _owned(topics: Iterable[_TopicPartitions], member_epoch: int) -> Mapping[bytes, Mapping[int, int]]:
    owned: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # The record is older than assignment epochs; a static member that left has the epoch -2.
            owned[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
        else:
            owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
