"""Groups of all types in lists; consumer groups of both protocols with their members and offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import describe_error, raise_for
from ottla.admin.partitions import P, Partition, by_topic
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.connection import Node
    from ottla.wire.messages import (
        ConsumerGroupDescribeResponse,
        DescribeGroupsResponse,
        LeaveGroupResponse,
        ListGroupsResponse,
        OffsetDeleteResponse,
    )

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
_TOPICS_BY_NAME: Final = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones use ids."""
_SEVERAL_GROUPS: Final = 8
"""The first version of OffsetFetch that asks for several groups."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    type: str
    protocol: str
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group."""

    member_id: str
    instance_id: str
    host: str
    client_id: str
    assignment: list[Partition]
    target: list[Partition]
    epoch: int | None
    upgraded: bool | None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group with its members. Classic groups have no epochs."""

    group_id: str
    state: str
    coordinator: Node
    assignor: str
    members: list[Member] = field(default_factory=list)
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset. `leader_epoch` is None if the consumer did not know it."""

    offset: int
    leader_epoch: int | None
    metadata: str


# -- lists


def list_groups_on(
    cluster: Cluster, broker_id: int, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> ListGroupsResponse:
    """The groups that one broker coordinates."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def ask() -> ListGroupsResponse:
        response = cluster.ask(request, broker_id)
        raise_for(response.error_code, None, f"broker {broker_id}")
        return response

    return cluster.retrying(ask)


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of all brokers, by name."""
    found: dict[str, ListedGroup] = {}
    for broker_id in list(cluster.nodes()):
        for each in list_groups_on(cluster, broker_id).groups:
            kind = each.group_type.capitalize() or CLASSIC
            found[each.group_id] = ListedGroup(each.group_id, kind, each.protocol_type, each.group_state)
    return [found[name] for name in sorted(found)]


def list_consumer_groups(cluster: Cluster) -> list[ListedGroup]:
    """The consumer groups of both protocols."""
    return [
        group
        for group in list_groups(cluster)
        if group.type in (CLASSIC, CONSUMER) and group.protocol in ("", "consumer")
    ]


# -- groups and members


def describe_classic_groups(
    cluster: Cluster, broker_id: int, group_ids: Iterable[str], *, operations: bool = False
) -> DescribeGroupsResponse:
    """Groups of the classic protocol, from their coordinator."""
    names = [GroupId(each) for each in group_ids]
    request = DescribeGroupsRequest(groups=names, include_authorized_operations=operations)
    return cluster.ask(request, broker_id)


def describe_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, Group | ApiException]:
    """Each consumer group, or why it cannot be described."""
    return cluster.retrying(partial(_describe_groups, cluster, group_ids)) if group_ids else {}


def _describe_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, Group | ApiException]:
    found: dict[str, Group | ApiException] = {}
    for broker_id, names in cluster.coordinators(group_ids).items():
        found |= describe_groups_on(cluster, broker_id, names)
    return {name: found[name] for name in sorted(found)}


def describe_groups_on(
    cluster: Cluster, broker_id: int, group_ids: Sequence[str], *, classic: bool = False
) -> dict[str, Group | ApiException]:
    """The same of their coordinator, once. `classic` says that all of them are known to be of the classic protocol."""
    found: dict[str, Group | ApiException] = {}
    names = group_ids
    if not classic and cluster.version_for(ApiKey.CONSUMER_GROUP_DESCRIBE, broker_id) is not None:
        request = ConsumerGroupDescribeRequest(group_ids=[GroupId(name) for name in group_ids])
        found, names = consumer_groups_in(cluster, broker_id, cluster.ask(request, broker_id))
    if names:
        found |= classic_groups_in(cluster, broker_id, describe_classic_groups(cluster, broker_id, names))
    return found


def consumer_groups_in(
    cluster: Cluster, broker_id: int, response: ConsumerGroupDescribeResponse
) -> tuple[dict[str, Group | ApiException], list[str]]:
    """The groups that their coordinator describes, and the names of those that are not of this protocol."""
    found: dict[str, Group | ApiException] = {}
    others: list[str] = []
    for each in response.groups:
        if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            others.append(each.group_id)
        else:
            error = _group_error(cluster, each.group_id, each.error_code, each.error_message)
            found[each.group_id] = error or _consumer_group(each, cluster.nodes()[broker_id])
    return found, others


def classic_groups_in(
    cluster: Cluster, broker_id: int, response: DescribeGroupsResponse
) -> dict[str, Group | ApiException]:
    """The groups of the classic protocol that their coordinator describes."""
    found: dict[str, Group | ApiException] = {}
    for each in response.groups:
        error = _group_error(cluster, each.group_id, each.error_code, each.error_message)
        found[each.group_id] = error or _classic_group(each, cluster.nodes()[broker_id])
    return found


def _group_error(cluster: Cluster, group_id: str, number: int, message: str | None) -> ApiException | None:
    if number == ErrorCode.NONE:
        return None
    code = ErrorCode.of(number)
    if code in cluster.settings.retriable:
        raise_for(code, None, group_id)
    if not message and code != ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"{group_id}: {describe_error(code)}"
    return ApiException(code, message or f"Group {group_id} not found.")


def _consumer_group(group: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: Node) -> Group:
    members = [
        Member(
            each.member_id,
            each.instance_id or "",
            each.client_host,
            each.client_id,
            _partitions_of(each.assignment),
            _partitions_of(each.target_assignment),
            each.member_epoch,
            None if each.member_type < 0 else each.member_type == 1,
        )
        for each in group.members
    ]
    return Group(
        group.group_id,
        group.group_state,
        coordinator,
        group.assignor_name,
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: ConsumerGroupDescribeResponse.Assignment) -> list[Partition]:
    return [
        (topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    ]


def _classic_group(group: DescribeGroupsResponse.DescribedGroup, coordinator: Node) -> Group | ApiException:
    if group.protocol_type not in ("", "consumer"):
        message = f"group '{group.group_id}' is not of consumers but of '{group.protocol_type}'"
        return ApiException(ErrorCode.INVALID_GROUP_ID, message)
    members = [
        Member(
            each.member_id,
            each.group_instance_id or "",
            each.client_host,
            each.client_id,
            _classic_assignment(each.member_assignment),
            [],
            None,
            None,
        )
        for each in group.members
    ]
    return Group(group.group_id, group.group_state, coordinator, group.protocol_data, members)


def _classic_assignment(data: bytes) -> list[Partition]:
    if len(data) < 2:
        return []
    version = min(struct.unpack_from(">h", data)[0], ConsumerProtocolAssignment.MAX_VERSION)
    assignment, _ = decode_prefix(ConsumerProtocolAssignment, version, data, 2)
    return [(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions]


def delete_groups(
    cluster: Cluster, group_ids: Sequence[str], broker_id: int | None = None
) -> dict[str, ErrorCode]:
    """Delete groups: the error code, or NONE, of each. `broker_id` is their coordinator if the caller knows it."""
    if not group_ids:
        return {}
    by_broker = cluster.coordinators(group_ids) if broker_id is None else {broker_id: list(group_ids)}
    found: dict[str, ErrorCode] = {}
    for coordinator, names in by_broker.items():
        request = DeleteGroupsRequest(groups_names=[GroupId(name) for name in names])
        for result in cluster.ask(request, coordinator).results:
            found[result.group_id] = ErrorCode.of(result.error_code)
    return {name: found[name] for name in sorted(found)}


def remove_members(
    cluster: Cluster,
    group_id: str,
    members: Iterable[tuple[str, str | None, str | None]],
    broker_id: int | None = None,
) -> LeaveGroupResponse:
    """Remove members by (member id, instance id, reason); the response has an error code for each."""
    kind = LeaveGroupRequest
    identities = [
        kind.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
        for member_id, instance_id, reason in members
    ]
    coordinator = cluster.coordinator(group_id) if broker_id is None else broker_id
    response = cluster.ask(kind(group_id=GroupId(group_id), members=identities), coordinator)
    raise_for(response.error_code, None, group_id)
    return response


# -- offsets


def committed_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition] | None = None
) -> dict[Partition, Committed]:
    """The offsets that a group has committed, of some partitions or of all; none for an unknown group."""
    found = committed_or_none(cluster, group_id, partitions)
    return {partition: each for partition, each in found.items() if each.offset >= 0}


def committed_or_none(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition] | None = None
) -> dict[Partition, Committed]:
    """The same; a partition that was asked for and has no committed offset has -1."""
    topics = None if partitions is None else by_topic(partitions)
    return cluster.retrying(partial(_fetch_offsets, cluster, group_id, topics))


def _fetch_offsets(
    cluster: Cluster, group_id: str, wanted: Mapping[TopicName, list[int]] | None
) -> dict[Partition, Committed]:
    kind = OffsetFetchRequest
    coordinator = cluster.coordinator(group_id)
    found: dict[Partition, Committed] = {}
    if (cluster.version_for(ApiKey.OFFSET_FETCH, coordinator) or 0) >= _SEVERAL_GROUPS:
        topics = None
        if wanted is not None:
            topics = [
                kind.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in wanted.items()
            ]
        group = kind.OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=topics)
        response = cluster.ask(kind(groups=[group]), coordinator, _TOPICS_BY_NAME).groups[0]
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise_for(response.error_code, None, group_id)
        for topic in response.topics:
            for each in topic.partitions:
                raise_for(each.error_code, None, f"{topic.name}-{each.partition_index}")
                found[topic.name, each.partition_index] = _committed(
                    each.committed_offset, each.committed_leader_epoch, each.metadata
                )
    else:
        old_topics = None
        if wanted is not None:
            old_topics = [
                kind.OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in wanted.items()
            ]
        old = cluster.ask(kind(group_id=GroupId(group_id), topics=old_topics), coordinator)
        raise_for(old.error_code, None, group_id)
        for old_topic in old.topics:
            for part in old_topic.partitions:
                raise_for(part.error_code, None, f"{old_topic.name}-{part.partition_index}")
                found[old_topic.name, part.partition_index] = _committed(
                    part.committed_offset, part.committed_leader_epoch, part.metadata
                )
    return dict(sorted(found.items()))


def _committed(offset: int, leader_epoch: int, metadata: str | None) -> Committed:
    return Committed(offset, leader_epoch if leader_epoch >= 0 else None, metadata or "")


def alter_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[P, Committed], broker_id: int | None = None
) -> dict[Partition, ErrorCode]:
    """Commit offsets for a group that has no members: the error code, or NONE, of each partition."""
    new: dict[Partition, Committed] = dict(offsets.items())
    kind = OffsetCommitRequest
    request = kind(
        group_id=GroupId(group_id),
        topics=[
            kind.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=new[topic, number].offset,
                        committed_leader_epoch=_epoch_number(new[topic, number].leader_epoch),
                        committed_metadata=new[topic, number].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(new).items()
        ],
    )
    coordinator = cluster.coordinator(group_id) if broker_id is None else broker_id
    response = cluster.ask(request, coordinator, _TOPICS_BY_NAME)
    return {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def _epoch_number(leader_epoch: int | None) -> int:
    return -1 if leader_epoch is None else leader_epoch


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """The same for offsets alone; ApiException at the first partition that is refused."""
    new = {partition: Committed(offset, None, "") for partition, offset in offsets.items()}

    def commit() -> None:
        for (topic, number), code in alter_offsets(cluster, group_id, new).items():
            raise_for(code, None, f"{topic}-{number}")

    if new:
        cluster.retrying(commit)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition], broker_id: int | None = None
) -> OffsetDeleteResponse:
    """Delete the committed offsets of partitions; the response has a code for the request and for each partition."""
    kind = OffsetDeleteRequest
    request = kind(
        group_id=GroupId(group_id),
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    return cluster.ask(request, cluster.coordinator(group_id) if broker_id is None else broker_id)
