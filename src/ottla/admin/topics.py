"""Topics: create, delete and describe them, and give them more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.ids import BrokerId, TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse

    DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

DEFAULT_TIMEOUT_MS: Final = 30_000
PARTITIONS_PER_RESPONSE: Final = 2000
_TOPICS_AS_STRUCTS: Final = 6
"""The first version of DeleteTopics that names topics in structs, not in a list of strings."""


@dataclass(slots=True)
class NewTopic:
    """A topic to create. -1 leaves the number to the broker; with `replica_assignments` both numbers follow from them.

    >>> NewTopic("orders", num_partitions=6, topic_configs={"cleanup.policy": "compact"}).num_partitions
    6
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, list[int]] | None = None
    topic_configs: Mapping[str, str] | None = None


@dataclass(slots=True)
class NewPartitions:
    """The number of partitions that a topic shall have, and the brokers of the new ones.

    >>> NewPartitions(4, new_assignments=[[1, 2], [2, 3]]).total_count
    4
    """

    total_count: int
    new_assignments: list[list[int]] | None = None


def create_topics(
    cluster: Cluster,
    topics: Iterable[NewTopic],
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    validate_only: bool = False,
) -> CreateTopicsResponse:
    """Create topics; the response has an error code for each."""
    kind = CreateTopicsRequest
    wanted = [
        kind.CreatableTopic(
            name=TopicName(topic.name),
            num_partitions=-1 if topic.replica_assignments else topic.num_partitions,
            replication_factor=-1 if topic.replica_assignments else topic.replication_factor,
            assignments=[
                kind.CreatableReplicaAssignment(
                    partition_index=number, broker_ids=[BrokerId(each) for each in brokers]
                )
                for number, brokers in (topic.replica_assignments or {}).items()
            ],
            configs=[
                kind.CreatableTopicConfig(name=name, value=None if value is None else str(value))
                for name, value in (topic.topic_configs or {}).items()
            ],
        )
        for topic in topics
    ]
    return cluster.ask(kind(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only))


def delete_topics(
    cluster: Cluster, names: Iterable[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
) -> DeleteTopicsResponse:
    """Delete topics with all their records; the response has an error code for each."""
    kind = DeleteTopicsRequest
    wanted = [TopicName(name) for name in names]
    if (cluster.version_for(ApiKey.DELETE_TOPICS) or 0) >= _TOPICS_AS_STRUCTS:
        structs = [kind.DeleteTopicState(name=name) for name in wanted]
        return cluster.ask(kind(topics=structs, timeout_ms=timeout_ms))
    return cluster.ask(kind(topic_names=wanted, timeout_ms=timeout_ms))


def delete_all_of(cluster: Cluster, names: Iterable[str]) -> None:
    """Delete topics; ApiException at the first one that is refused."""
    for result in delete_topics(cluster, names).responses:
        raise_for(result.error_code, result.error_message, result.name or "")


def create_partitions(
    cluster: Cluster,
    topics: Mapping[str, NewPartitions],
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    validate_only: bool = False,
) -> CreatePartitionsResponse:
    """Grow topics to numbers of partitions; the response has an error code for each."""
    kind = CreatePartitionsRequest
    wanted = []
    for name, new in topics.items():
        assignments = None
        if new.new_assignments:
            assignments = [
                kind.CreatePartitionsAssignment(broker_ids=[BrokerId(each) for each in brokers])
                for brokers in new.new_assignments
            ]
        topic = kind.CreatePartitionsTopic(
            name=TopicName(name), count=new.total_count, assignments=assignments
        )
        wanted.append(topic)
    return cluster.ask(kind(topics=wanted, timeout_ms=timeout_ms, validate_only=validate_only))


def describe_topic_page(
    cluster: Cluster,
    names: Iterable[str],
    limit: int = PARTITIONS_PER_RESPONSE,
    cursor: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    """One page of topics with their partitions and eligible leaders, from a topic and partition on."""
    return cluster.ask(topic_page_request(names, limit, cursor))


def topic_page_request(
    names: Iterable[str], limit: int = PARTITIONS_PER_RESPONSE, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    """The request for such a page; no names mean all topics."""
    kind = DescribeTopicPartitionsRequest
    start = None
    if cursor is not None:
        start = kind.Cursor(topic_name=TopicName(cursor[0]), partition_index=cursor[1])
    topics = [kind.TopicRequest(name=TopicName(name)) for name in names]
    return kind(topics=topics, response_partition_limit=limit, cursor=start)


def describe_topics(
    cluster: Cluster, names: Sequence[str], limit: int = PARTITIONS_PER_RESPONSE, *, eligible: bool = True
) -> list[DescribedTopic]:
    """Topics with their partitions in order, from as many pages as it takes.

    Brokers before Kafka 3.8, and requests without `eligible`, give no eligible leader replicas.
    """
    if not eligible or not cluster.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return list(_from_metadata(cluster, names))
    found: dict[str, DescribedTopic] = {}
    cursor = None
    while True:
        page = describe_topic_page(cluster, names, limit, cursor)
        for topic in page.topics:
            name = topic.name or ""
            raise_for(topic.error_code, None, name)
            if name in found:
                found[name].partitions += topic.partitions
            else:
                found[name] = topic
        if page.next_cursor is None:
            break
        cursor = page.next_cursor.topic_name, page.next_cursor.partition_index
    for topic in found.values():
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    return [found[name] for name in sorted(found)]


def _from_metadata(cluster: Cluster, names: Sequence[str]) -> Iterator[DescribedTopic]:
    kind = DescribeTopicPartitionsResponse
    for topic in sorted(cluster.metadata(names).topics, key=lambda topic: topic.name or ""):
        raise_for(topic.error_code, None, topic.name or "")
        partitions = [
            kind.DescribeTopicPartitionsResponsePartition(
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                replica_nodes=partition.replica_nodes,
                isr_nodes=partition.isr_nodes,
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]
        yield kind.DescribeTopicPartitionsResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        )
