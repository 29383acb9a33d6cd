"""Consumer groups as their coordinators tell of them: both protocols in one shape, and their offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.tools.cluster_client import PASSING
from ottla.cli.tools.failures import UsageProblem, describe, raise_for
from ottla.cli.tools.partitions import Partition, by_topic
from ottla.client.connection import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
CONSUMER_STATES: Final = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling"),
)
_NAMES_NOT_IDS: Final = 9
"""The last version of OffsetFetch and OffsetCommit that speaks of topics by name."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    type: str
    protocol: str
    state: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

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
    """A group with its members."""

    group_id: str
    state: str
    coordinator: Node
    assignor: str
    members: list[Member] = field(default_factory=list)
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset."""

    offset: int
    leader_epoch: int | None
    metadata: str


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of all brokers, by name."""
    found: dict[str, ListedGroup] = {}
    for node in cluster.nodes():
        answer = cluster.retrying(partial(_list_on, cluster, node))
        for each in answer.groups:
            kind = each.group_type.capitalize() or CLASSIC
            found[each.group_id] = ListedGroup(each.group_id, kind, each.protocol_type, each.group_state)
    return [found[name] for name in sorted(found)]


def _list_on(cluster: Cluster, node: int) -> Any:
    answer = cluster.ask(ListGroupsRequest(), node)
    raise_for(answer.error_code)
    return answer


def consumer_groups(cluster: Cluster) -> list[ListedGroup]:
    """The groups of consumers, of both protocols."""
    return [
        group
        for group in list_groups(cluster)
        if group.type in (CLASSIC, CONSUMER) and group.protocol in ("", "consumer")
    ]


def describe_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, Group | ApiException]:
    """Each group, or why it cannot be described."""
    if not group_ids:
        return {}
    return cluster.retrying(lambda: _describe_groups(cluster, group_ids))


def _describe_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, Group | ApiException]:
    found: dict[str, Group | ApiException] = {}
    for node, names in cluster.coordinators(group_ids).items():
        left = names
        if cluster.connection(node).version_for(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None:
            left = []
            for told in cluster.ask(ConsumerGroupDescribeRequest(group_ids=names), node).groups:
                if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    left.append(told.group_id)
                else:
                    found[told.group_id] = _or_error(told) or _new_group(told, cluster.nodes()[node])
        if left:
            for told in cluster.ask(DescribeGroupsRequest(groups=left), node).groups:
                found[told.group_id] = _or_error(told) or _classic_group(told, cluster.nodes()[node])
    return {name: found[name] for name in sorted(found)}


def _or_error(told: Any) -> ApiException | None:
    if told.error_code == ErrorCode.NONE:
        return None
    code = ErrorCode.of(told.error_code)
    if code in PASSING:
        raise_for(code, None, told.group_id)
    message = told.error_message
    if not message and code != ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"{told.group_id}: {describe(code)}"
    return ApiException(code, message or f"Group {told.group_id} not found.")


def _new_group(told: Any, coordinator: Node) -> Group:
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
        for each in told.members
    ]
    return Group(
        told.group_id,
        told.group_state,
        coordinator,
        told.assignor_name,
        members,
        told.group_epoch,
        told.assignment_epoch,
    )


def _partitions_of(assignment: Any) -> list[Partition]:
    return [
        (topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    ]


def _classic_group(told: Any, coordinator: Node) -> Group | ApiException:
    if told.protocol_type not in ("", "consumer"):
        message = f"group '{told.group_id}' is not of consumers but of '{told.protocol_type}'"
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
        for each in told.members
    ]
    return Group(told.group_id, told.group_state, coordinator, told.protocol_data, members)


def _classic_assignment(data: bytes) -> list[Partition]:
    if len(data) < 2:
        return []
    version = min(struct.unpack_from(">h", data)[0], ConsumerProtocolAssignment.MAX_VERSION)
    told, _ = decode_prefix(ConsumerProtocolAssignment, version, data, 2)
    return [(topic.topic, number) for topic in told.assigned_partitions for number in topic.partitions]


def committed_offsets(cluster: Cluster, group_id: str) -> dict[Partition, Committed]:
    """The offsets that a group has committed."""
    return cluster.retrying(lambda: _fetch_offsets(cluster, group_id))


def _fetch_offsets(cluster: Cluster, group_id: str) -> dict[Partition, Committed]:
    node = cluster.coordinator(group_id)
    version = cluster.connection(node).version_for(ApiKey.OFFSET_FETCH) or 0
    kind = OffsetFetchRequest
    if version >= 8:
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        answer = cluster.ask(request, node, _NAMES_NOT_IDS).groups[0]
    else:
        answer = cluster.ask(kind(group_id=group_id, topics=None), node)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    raise_for(answer.error_code, None, group_id)
    found: dict[Partition, Committed] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_for(each.error_code, None, f"{topic.name}-{each.partition_index}")
            if each.committed_offset >= 0:
                epoch = each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None
                found[topic.name, each.partition_index] = Committed(
                    each.committed_offset, epoch, each.metadata or ""
                )
    return dict(sorted(found.items()))


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Set a group's offsets; ApiException at the first that is refused."""
    if not offsets:
        return
    kind = OffsetCommitRequest
    request = kind(
        group_id=group_id,
        topics=[
            kind.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[topic, number], committed_metadata=""
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )

    def commit() -> None:
        answer = cluster.ask(request, cluster.coordinator(group_id), _NAMES_NOT_IDS)
        for topic in answer.topics:
            for each in topic.partitions:
                raise_for(each.error_code, None, f"{topic.name}-{each.partition_index}")

    cluster.retrying(commit)


def delete_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
    """Delete groups; what became of each."""
    found: dict[str, ErrorCode] = {}
    for node, names in cluster.coordinators(group_ids).items() if group_ids else ():
        for result in cluster.ask(DeleteGroupsRequest(groups_names=names), node).results:
            found[result.group_id] = ErrorCode.of(result.error_code)
    return {name: found[name] for name in sorted(found)}


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition]
) -> tuple[ErrorCode, dict[Partition, ErrorCode]]:
    """Forget a group's offsets of some partitions: what became of the request, and of each partition."""
    kind = OffsetDeleteRequest
    request = kind(
        group_id=group_id,
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    answer = cluster.ask(request, cluster.coordinator(group_id))
    results = {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
    return ErrorCode.of(answer.error_code), results


def parse_words(text: str, valid: Sequence[str], what: str) -> set[str]:
    """A list of words like `stable,empty`, in the spelling that the cluster has for them."""
    spelled = {word.lower(): word for word in valid}
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word.lower() not in spelled]
    if unknown:
        raise UsageProblem(f"Invalid {what} list '{text}'. Valid are: {', '.join(valid)}")
    return {spelled[word.lower()] for word in words}
