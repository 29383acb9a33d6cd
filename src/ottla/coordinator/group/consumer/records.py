"""The records of consumer groups in `__consumer_offsets`, in the form that Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.coordinator.group.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from ottla.coordinator.group.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.records import CoordinatorRecord
from ottla.wire import messages


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupMetadataKey(group_id=group_id),
        messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Ends a record that Kafka before 4.1 kept of the subscribed topics; the group's hash has taken its place."""
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


def member_subscription_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
    )


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    value = messages.ConsumerGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            topic_partitions=[
                value.TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in partitions.items()
            ]
        ),
    )


def target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
    )


def target_epoch(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        messages.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=computed_ms
        ),
    )


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


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


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
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


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All of a member's records, in the order in which they have to go."""
    return [
        current_assignment_tombstone(group_id, member_id),
        target_assignment_tombstone(group_id, member_id),
        member_subscription_tombstone(group_id, member_id),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """All of a group's records, in the order in which they have to go."""
    member_ids = list(member_ids)
    return [
        *(current_assignment_tombstone(group_id, member_id) for member_id in member_ids),
        *(target_assignment_tombstone(group_id, member_id) for member_id in member_ids),
        target_epoch_tombstone(group_id),
        *(member_subscription_tombstone(group_id, member_id) for member_id in member_ids),
        *(regular_expression_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        group_epoch_tombstone(group_id),
    ]


# -- and back


def partitions_of(value: Any) -> Partitions:
    """The partitions in a target assignment record."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def subscription_changes(value: Any) -> dict[str, Any]:
    """The fields of a member that its metadata record sets."""
    classic = value.classic_member_metadata
    return {
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "topic_names": frozenset(value.subscribed_topic_names),
        "topic_regex": value.subscribed_topic_regex or "",
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "server_assignor": value.server_assignor,
        "classic": None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple(
                ClassicProtocol(protocol.name, bytes(protocol.metadata))
                for protocol in classic.supported_protocols
            ),
        ),
    }


def assignment_changes(value: Any) -> dict[str, Any]:
    """The fields of a member that its current assignment record sets."""
    return {
        "epoch": value.member_epoch,
        "previous_epoch": value.previous_member_epoch,
        "state": MemberState.of(value.state),
        "assigned": _owned(value.assigned_partitions, value.member_epoch),
        "pending_revocation": _owned(value.partitions_pending_revocation, value.member_epoch),
    }


def _with_epochs(owned: OwnedPartitions) -> list[Any]:
    value = messages.ConsumerGroupCurrentMemberAssignmentValue
    return [
        value.TopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in owned.items()
    ]


def _owned(topics: Iterable[Any], member_epoch: int) -> Mapping[bytes, Mapping[int, int]]:
    owned: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # Written before assignments had epochs; a static member that left stands at -2.
            owned[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
        else:
            owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
