"""The sampler's questions: small requests to the brokers that know, each broker's failure costs only its own rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ottla.admin.quorum import describe_cluster, describe_quorum
from ottla.admin.topics import topic_page_request
from ottla.console.sampler.state import FOR_EVER, Directory, NodeState, QuorumState, TopicState, Voter
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import DescribeConfigsRequest, DescribeLogDirsRequest, ListOffsetsRequest
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from ottla.admin.at_once import AtOnce
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import (
        DescribeConfigsResponse,
        DescribeLogDirsResponse,
        DescribeTopicPartitionsResponse,
        ListOffsetsResponse,
        MetadataResponse,
    )

    _Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
    _Listed = MetadataResponse.MetadataResponsePartition

PARTITIONS_PER_REQUEST: Final = 5_000
TOPICS_PER_REQUEST: Final = 500
_CONSUMER: Final = BrokerId(-1)
_POLICY: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_NUMBER: Final = attrgetter("partition_index")
_NONE: Final = array("q")


@dataclass(slots=True)
class FoundTopic:
    """A topic with what the metadata says about each of its partitions, by number."""

    topic_id: bytes
    internal: bool
    leaders: list[int] = field(default_factory=list)
    replicas: list[tuple[int, ...]] = field(default_factory=list)
    isr: list[tuple[int, ...]] = field(default_factory=list)


def topics(cluster: Cluster, work: AtOnce) -> dict[str, FoundTopic]:
    """All topics with leaders and replicas, in pages if the cluster has them. They are there when the work is done."""
    found: dict[str, FoundTopic] = {}
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}

    def take(page: DescribeTopicPartitionsResponse) -> None:
        cursor = page.next_cursor
        if cursor is not None:
            at = cursor.topic_name, cursor.partition_index
            work.add(topic_page_request((), cursor=at), take)
        for each in page.topics:
            if not each.error_code:
                topic = found.setdefault(each.name or "", FoundTopic(each.topic_id, each.is_internal))
                _add(topic, each.partitions, lists)

    if cluster.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        work.add(topic_page_request(()), take)
        return found
    for each in cluster.metadata().topics:
        if not each.error_code:
            topic = found.setdefault(each.name or "", FoundTopic(each.topic_id, each.is_internal))
            _add(topic, each.partitions, lists)
    return found


def _add(
    topic: FoundTopic,
    partitions: Sequence[_Described | _Listed],
    lists: dict[tuple[int, ...], tuple[int, ...]],
) -> None:
    """Add partitions by number. Equal lists of brokers become one tuple: a cluster has few different ones."""
    for each in sorted(partitions, key=_NUMBER):
        topic.leaders.append(each.leader_id)
        replicas, isr = tuple(each.replica_nodes), tuple(each.isr_nodes)
        topic.replicas.append(lists.setdefault(replicas, replicas))
        topic.isr.append(lists.setdefault(isr, isr))


@dataclass(frozen=True, slots=True)
class OffsetQuestions:
    """The requests for one offset of each partition, by leader: made once for the topics of a metadata answer."""

    requests: Mapping[int, Sequence[ListOffsetsRequest]]

    @classmethod
    def of(cls, topics: Iterable[TopicState], moment: int) -> OffsetQuestions:
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic in topics:
            for number, leader in enumerate(topic.leaders):
                if leader >= 0:
                    by_leader.setdefault(leader, {}).setdefault(topic.name, []).append(number)
        return cls({leader: list(_requests(wanted, moment)) for leader, wanted in by_leader.items()})


def _requests(wanted: Mapping[str, Sequence[int]], moment: int) -> Iterator[ListOffsetsRequest]:
    kind = ListOffsetsRequest
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = []
    count = 0
    for name, numbers in wanted.items():
        partitions = [kind.ListOffsetsPartition(partition_index=each, timestamp=moment) for each in numbers]
        topics.append(kind.ListOffsetsTopic(name=TopicName(name), partitions=partitions))
        count += len(partitions)
        if count >= PARTITIONS_PER_REQUEST:
            yield kind(replica_id=_CONSUMER, topics=topics)
            topics, count = [], 0
    if topics:
        yield kind(replica_id=_CONSUMER, topics=topics)


def offsets(work: AtOnce, questions: OffsetQuestions, columns: Mapping[str, array[int]]) -> None:
    """Put the offsets that leaders answer into the columns."""
    take = partial(_put_offsets, columns)
    for leader, requests in questions.requests.items():
        for request in requests:
            work.add(request, take, leader)


def _put_offsets(columns: Mapping[str, array[int]], answer: ListOffsetsResponse) -> None:
    for each in answer.topics:
        column = columns.get(each.name)
        if column is None:
            continue
        size = len(column)
        for part in each.partitions:
            if not part.error_code and 0 <= part.partition_index < size:
                column[part.partition_index] = part.offset


def nodes(cluster: Cluster, known: Mapping[int, NodeState]) -> tuple[str, dict[int, NodeState]]:
    """The cluster's id and its brokers, fenced ones too where the cluster tells them."""
    version = cluster.version_for(ApiKey.DESCRIBE_CLUSTER)
    found: dict[int, NodeState] = {}
    if version is None:
        answer = cluster.metadata(())
        for old in answer.brokers:
            found[old.node_id] = NodeState(old.node_id, old.host, old.port, old.rack)
        cluster_id = answer.cluster_id or ""
    else:
        described = describe_cluster(cluster, fenced=version >= 2)
        cluster_id = described.cluster_id
        for each in described.brokers:
            node = NodeState(each.broker_id, each.host, each.port, each.rack, fenced=each.is_fenced)
            found[each.broker_id] = node
        cluster.refresh()
    for node_id, node in found.items():
        if node_id in known:
            node.directories = known[node_id].directories
            node.silent_since_s = known[node_id].silent_since_s
            node.answers = known[node_id].answers
    return cluster_id, found


def quorum(cluster: Cluster) -> QuorumState | None:
    """The metadata quorum; None where the cluster has none or does not tell."""
    if not cluster.supports(ApiKey.DESCRIBE_QUORUM):
        return None
    answer = describe_quorum(cluster)
    if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
        return None
    one = answer.topics[0].partitions[0]
    voters = [
        Voter(
            each.replica_id,
            uuid_to_str(each.replica_directory_id),
            each.log_end_offset,
            each.last_fetch_timestamp,
            each.last_caught_up_timestamp,
            voter,
        )
        for states, voter in ((one.current_voters, True), (one.observers, False))
        for each in states
    ]
    addresses: dict[int, str] = {
        node.node_id: ", ".join(f"{each.host}:{each.port}" for each in node.listeners)
        for node in answer.nodes
    }
    return QuorumState(one.leader_id, one.leader_epoch, one.high_watermark, voters, addresses)


def directories(
    work: AtOnce, nodes: Iterable[NodeState], columns: Mapping[str, array[int]], disk: dict[str, int]
) -> None:
    """The directories of brokers; the sizes of replicas go into the columns (largest replica) and `disk` (all)."""
    for node in nodes:
        work.add(DescribeLogDirsRequest(topics=None), partial(_put_sizes, node, columns, disk), node.node_id)


def _put_sizes(
    node: NodeState,
    columns: Mapping[str, array[int]],
    disk: dict[str, int],
    answer: DescribeLogDirsResponse,
) -> None:
    found = []
    for each in answer.results:
        used = 0
        for topic in each.topics:
            column = columns.get(topic.name, _NONE)
            kept, count = 0, len(column)
            for part in topic.partitions:
                number, size = part.partition_index, part.partition_size
                kept += size
                if 0 <= number < count and size > column[number]:
                    column[number] = size
            disk[topic.name] = disk.get(topic.name, 0) + kept
            used += kept
        error = ErrorCode.of(each.error_code).name if each.error_code else ""
        found.append(Directory(each.log_dir, each.total_bytes, each.usable_bytes, used, error))
    node.directories = found


def policies(work: AtOnce, topics: Mapping[str, TopicState]) -> None:
    """Which topics are compacted, and for how long the others keep records. What a user may not see stays as it was."""

    def take(answer: DescribeConfigsResponse) -> None:
        for result in answer.results:
            topic = topics.get(result.resource_name)
            if topic is not None and not result.error_code:
                found = {each.name: each.value or "" for each in result.configs}
                policy = found.get(_POLICY, "")
                topic.compacted = "compact" in policy
                keep = found.get(_RETENTION, "")
                topic.keep_ms = int(keep) if "delete" in policy and keep.isdecimal() else FOR_EVER

    kind = DescribeConfigsRequest
    names = list(topics)
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        wanted = [
            kind.DescribeConfigsResource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name=name,
                configuration_keys=[_POLICY, _RETENTION],
            )
            for name in names[start : start + TOPICS_PER_REQUEST]
        ]
        work.add(kind(resources=wanted), take)
