"""The sampler's questions: small requests to the brokers that know, each broker's failure costs only its own rows."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.admin.connection import ConnectionFailed
from ottla.admin.groups import CLASSIC, ListedGroup, list_groups_on
from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.quorum import describe_cluster, describe_quorum
from ottla.admin.topics import describe_topic_page
from ottla.console.sampler.state import Directory, NodeState, QuorumState, TopicState, Voter
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, GroupId, TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ListOffsetsRequest, OffsetFetchRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition
    from ottla.wire.messages import DescribeTopicPartitionsResponse, ListOffsetsResponse, MetadataResponse

    _Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
    _Listed = MetadataResponse.MetadataResponsePartition

_logger = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST: Final = 5_000
GROUPS_PER_REQUEST: Final = 100
_CONSUMER: Final = BrokerId(-1)
_TOPICS_BY_NAME: Final = 9
_SEVERAL_GROUPS: Final = 8
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


def topics(cluster: Cluster) -> dict[str, FoundTopic]:
    """All topics with leaders and replicas, in pages if the cluster has them."""
    found: dict[str, FoundTopic] = {}
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}
    if cluster.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        cursor = None
        while True:
            page = describe_topic_page(cluster, (), cursor=cursor)
            for one in page.topics:
                if not one.error_code:
                    topic = found.setdefault(one.name or "", FoundTopic(one.topic_id, one.is_internal))
                    _add(topic, one.partitions, lists)
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor.topic_name, page.next_cursor.partition_index
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


def offsets(
    cluster: Cluster, questions: OffsetQuestions, columns: Mapping[str, array[int]], silent: set[int]
) -> None:
    """Put the offsets that leaders answer into the columns; leaders that do not answer become `silent`."""
    for leader, requests in questions.requests.items():
        if leader in silent:
            continue
        try:
            _ask_offsets(cluster, requests, leader, columns)
        except ApiException as error:
            _logger.info("Broker %d does not answer ListOffsets: %s", leader, error.message)
            silent.add(leader)


def _ask_offsets(
    cluster: Cluster,
    requests: Sequence[ListOffsetsRequest],
    leader: int,
    columns: Mapping[str, array[int]],
) -> None:
    try:
        for answer in cluster.ask_each(requests, leader):
            _put_offsets(answer, columns)
    except ConnectionFailed as failure:
        if failure.timed_out:
            raise
        # The broker was restarted since the last round: a new connection may do.
        for answer in cluster.ask_each(requests, leader):
            _put_offsets(answer, columns)


def _put_offsets(answer: ListOffsetsResponse, columns: Mapping[str, array[int]]) -> None:
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
            str(UUID(bytes=bytes(each.replica_directory_id))),
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
    cluster: Cluster, node_id: int, columns: Mapping[str, array[int]], disk: dict[str, int]
) -> list[Directory]:
    """A broker's directories; the sizes of its replicas go into the columns (largest replica) and `disk` (all)."""
    found = []
    for each in describe_log_dirs(cluster, node_id).results:
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
    return found


def groups(cluster: Cluster, silent: set[int]) -> list[ListedGroup]:
    """All groups of the brokers that answer, by name; others become `silent`."""
    found: dict[str, ListedGroup] = {}
    for broker in list(cluster.nodes()):
        if broker in silent:
            continue
        try:
            listed = list_groups_on(cluster, broker).groups
        except ConnectionFailed as error:
            _logger.info("Broker %d does not answer ListGroups: %s", broker, error.message)
            silent.add(broker)
            continue
        for each in listed:
            kind = each.group_type.capitalize() or CLASSIC
            found[each.group_id] = ListedGroup(each.group_id, kind, each.protocol_type, each.group_state)
    return [found[name] for name in sorted(found)]


def committed(
    cluster: Cluster, by_coordinator: Mapping[int, Sequence[str]], silent: set[int]
) -> dict[str, dict[Partition, int]]:
    """The committed offsets of many groups, a hundred groups in each request to their coordinator."""
    found: dict[str, dict[Partition, int]] = {}
    for broker, names in by_coordinator.items():
        if broker in silent:
            continue
        try:
            found |= _committed_on(cluster, broker, names)
        except ConnectionFailed as error:
            _logger.info("Broker %d does not answer OffsetFetch: %s", broker, error.message)
            silent.add(broker)
    return found


def _committed_on(cluster: Cluster, broker: int, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
    found: dict[str, dict[Partition, int]] = {}
    kind = OffsetFetchRequest
    if (cluster.version_for(ApiKey.OFFSET_FETCH, broker) or 0) < _SEVERAL_GROUPS:
        from ottla.admin.groups import committed_offsets

        for name in names:
            offsets_of = committed_offsets(cluster, name)
            found[name] = {partition: each.offset for partition, each in offsets_of.items()}
        return found
    requests = [
        kind(
            groups=[
                kind.OffsetFetchRequestGroup(group_id=GroupId(name), topics=None)
                for name in names[start : start + GROUPS_PER_REQUEST]
            ]
        )
        for start in range(0, len(names), GROUPS_PER_REQUEST)
    ]
    for answer in cluster.ask_each(requests, broker, _TOPICS_BY_NAME):
        for group in answer.groups:
            if group.error_code:
                continue
            found[group.group_id] = {
                (topic.name, each.partition_index): each.committed_offset
                for topic in group.topics
                for each in topic.partitions
                if not each.error_code and each.committed_offset >= 0
            }
    return found
