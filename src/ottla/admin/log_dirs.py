"""The log directories of brokers: what lies in them, and moves of replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.admin.partitions import Partition, by_topic
from ottla.errors import ErrorCode
from ottla.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import DescribeLogDirsResponse


class Replica(NamedTuple):
    """One copy of a partition, in the order in which Kafka's tools sort them."""

    broker: int
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def describe_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[Partition] | None = None
) -> DescribeLogDirsResponse:
    """A broker's directories with the sizes of some partitions, or of all partitions for None."""
    kind = DescribeLogDirsRequest
    topics = None
    if partitions is not None:
        topics = [
            kind.DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    return cluster.ask(kind(topics=topics), broker_id)


def alter_replica_log_dirs(cluster: Cluster, wanted: Mapping[Replica, str]) -> dict[Replica, ErrorCode]:
    """Move replicas to other directories of their brokers: the error code, or NONE, of each."""
    kind = AlterReplicaLogDirsRequest
    results: dict[Replica, ErrorCode] = {}
    for broker in sorted({replica.broker for replica in wanted}):
        paths: dict[str, list[Partition]] = {}
        for replica, path in wanted.items():
            if replica.broker == broker:
                paths.setdefault(path, []).append((replica.topic, replica.partition))
        request = kind(
            dirs=[
                kind.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        kind.AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                        for topic, numbers in by_topic(partitions).items()
                    ],
                )
                for path, partitions in paths.items()
            ]
        )
        for topic in cluster.ask(request, broker).results:
            for each in topic.partitions:
                replica = Replica(broker, topic.topic_name, each.partition_index)
                results[replica] = ErrorCode.of(each.error_code)
    return results
