"""Share groups: their members, and the offsets that their partitions start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.admin.errors import describe_error, raise_for
from ottla.admin.partitions import Partition, by_topic
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.connection import Node
    from ottla.wire.messages import (
        DeleteShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponse,
        ShareGroupDescribeResponse,
    )

    ShareGroup = ShareGroupDescribeResponse.DescribedGroup
    ShareOffset = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


def describe_share_groups(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, tuple[Node, ShareGroup] | ApiException]:
    """Each group with its coordinator, or why it cannot be described."""
    found: dict[str, tuple[Node, ShareGroup] | ApiException] = {}
    for broker_id, own in cluster.coordinators(group_ids).items() if group_ids else ():
        request = ShareGroupDescribeRequest(group_ids=[GroupId(name) for name in own])
        for group in cluster.ask(request, broker_id).groups:
            if group.error_code == ErrorCode.NONE:
                found[group.group_id] = cluster.nodes()[broker_id], group
            else:
                message = describe_error(group.error_code, group.error_message)
                found[group.group_id] = ApiException(ErrorCode.of(group.error_code), message)
    return {name: found[name] for name in sorted(found)}


def share_offsets(cluster: Cluster, group_id: str) -> dict[Partition, ShareOffset]:
    """The start offset and lag of each partition that a group shares; ApiException for an unknown group."""
    kind = DescribeShareGroupOffsetsRequest
    wanted = kind.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group_id), topics=None)
    (group,) = cluster.ask(kind(groups=[wanted]), cluster.coordinator(group_id)).groups
    raise_for(group.error_code, group.error_message, group_id)
    found: dict[Partition, ShareOffset] = {}
    for topic in group.topics:
        for each in topic.partitions:
            raise_for(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")
            found[topic.topic_name, each.partition_index] = each
    return dict(sorted(found.items()))


def alter_share_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Set the start offsets of a group without members; ApiException at the first that is refused."""
    kind = AlterShareGroupOffsetsRequest
    topics = [
        kind.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                kind.AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=offsets[topic, number]
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    request = kind(group_id=GroupId(group_id), topics=topics)
    response = cluster.ask(request, cluster.coordinator(group_id))
    raise_for(response.error_code, response.error_message, group_id)
    for topic in response.responses:
        for each in topic.partitions:
            raise_for(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")


def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str]
) -> DeleteShareGroupOffsetsResponse:
    """Delete a group's offsets of topics; the response has an error code for each topic."""
    kind = DeleteShareGroupOffsetsRequest
    wanted = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(name)) for name in topics]
    request = kind(group_id=GroupId(group_id), topics=wanted)
    response = cluster.ask(request, cluster.coordinator(group_id))
    raise_for(response.error_code, response.error_message, group_id)
    return response
