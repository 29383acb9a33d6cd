"""ConsumerGroupDescribe: a group with its members and their assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerGroupMember
from ottla.coordinator.group.group import described_order
from ottla.metadata.image import MetadataImage
from ottla.wire import messages

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe(
    group: ConsumerGroup, default_assignor: str, image: MetadataImage
) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
    """The group with all of its members."""
    return messages.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, image) for member in described_order(group.members)],
    )


def _member(
    group: ConsumerGroup, member: ConsumerGroupMember, image: MetadataImage
) -> messages.ConsumerGroupDescribeResponse.Member:
    response = messages.ConsumerGroupDescribeResponse
    # The member still reads the partitions that it has yet to revoke.
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, numbers in partitions.items():
            owned.setdefault(topic_id, []).extend(numbers)
    return response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(group.target.get(member.member_id, {}), image),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], image: MetadataImage
) -> messages.ConsumerGroupDescribeResponse.Assignment:
    response = messages.ConsumerGroupDescribeResponse
    topics = image.topics.by_id
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(
                topic_id=topic_id,
                topic_name=topics[topic_id].name,
                partitions=sorted(numbers),
            )
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        ]
    )
