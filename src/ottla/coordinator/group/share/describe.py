"""ShareGroupDescribe: a group with its members and their assignments."""

from __future__ import annotations

from ottla.coordinator.group.group import described_order
from ottla.coordinator.group.share import assignor
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.member import ShareGroupMember
from ottla.metadata.image import MetadataImage
from ottla.wire import messages


def describe(group: ShareGroup, image: MetadataImage) -> messages.ShareGroupDescribeResponse.DescribedGroup:
    """The group with all of its members."""
    return messages.ShareGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor.NAME,
        members=[_member(member, image) for member in described_order(group.members)],
    )


def _member(member: ShareGroupMember, image: MetadataImage) -> messages.ShareGroupDescribeResponse.Member:
    response = messages.ShareGroupDescribeResponse
    topics = image.topics.by_id
    return response.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=response.Assignment(
            topic_partitions=[
                response.TopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(numbers)
                )
                for topic_id, numbers in member.assigned.items()
                if topic_id in topics
            ]
        ),
    )
