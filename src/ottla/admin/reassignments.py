"""Reassignments: moves of partitions from broker to broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.admin.partitions import P, Partition, by_topic
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.wire.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

DEFAULT_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is being reassigned."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def list_reassignments(
    cluster: Cluster,
    partitions: Iterable[Partition] | None = None,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[Partition, Reassignment]:
    """The reassignments in progress, of some partitions or of all."""
    kind = ListPartitionReassignmentsRequest
    topics = None
    if partitions is not None:
        topics = [
            kind.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    response = cluster.ask(kind(topics=topics, timeout_ms=timeout_ms))
    raise_for(response.error_code, response.error_message)
    return {
        (topic.name, each.partition_index): Reassignment(
            [*each.replicas], [*each.adding_replicas], [*each.removing_replicas]
        )
        for topic in response.topics
        for each in topic.partitions
    }


def alter_reassignments(
    cluster: Cluster,
    wanted: Mapping[P, Sequence[int] | None],
    *,
    allow_factor_change: bool = True,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[Partition, tuple[ErrorCode, str | None]]:
    """Move partitions to brokers, or cancel a move for None: the error code and message of each partition."""
    targets: dict[Partition, Sequence[int] | None] = dict(wanted.items())
    kind = AlterPartitionReassignmentsRequest
    topics = []
    for topic, numbers in by_topic(targets).items():
        partitions = []
        for number in numbers:
            target = targets[topic, number]
            replicas = None if target is None else [BrokerId(each) for each in target]
            partitions.append(kind.ReassignablePartition(partition_index=number, replicas=replicas))
        topics.append(kind.ReassignableTopic(name=topic, partitions=partitions))
    request = kind(timeout_ms=timeout_ms, allow_replication_factor_change=allow_factor_change, topics=topics)
    response = cluster.ask(request)
    raise_for(response.error_code, response.error_message)
    return {
        (result.name, each.partition_index): (ErrorCode.of(each.error_code), each.error_message)
        for result in response.responses
        for each in result.partitions
    }
