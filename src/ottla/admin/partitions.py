"""Partitions: their leaders, the offsets that they hold, elections, and the deletion of old records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.wire.enums import ElectionType, IsolationLevel, OffsetSpec
from ottla.wire.messages import DeleteRecordsRequest, ElectLeadersRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import DeleteRecordsResponse, ElectLeadersResponse

Partition = tuple[str, int]
"""A topic's name and a partition's number. The client API's `TopicPartition` is one."""
P = TypeVar("P", bound=Partition)

LATEST: Final = OffsetSpec.LATEST
EARLIEST: Final = OffsetSpec.EARLIEST
DEFAULT_TIMEOUT_MS: Final = 30_000
_CONSUMER: Final = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A leader's answer to a question about offsets; the offset is -1 if the partition has none that fits."""

    offset: int
    timestamp: int
    leader_epoch: int
    error: ErrorCode


def by_topic(partitions: Iterable[Partition]) -> dict[TopicName, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[TopicName, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(TopicName(topic), []).append(number)
    return grouped


def leaders(cluster: Cluster, topics: Iterable[str]) -> dict[Partition, int]:
    """Every partition of the topics with its leader, -1 for none. ApiException for an unknown topic."""
    found: dict[Partition, int] = {}
    wanted = sorted(set(topics))
    for topic in cluster.metadata(wanted).topics if wanted else ():
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiException(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic '{topic.name}'; `ottla topics --list` shows what there is",
            )
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise_for(topic.error_code, None, topic.name or "")
        for partition in topic.partitions:
            found[topic.name or "", partition.partition_index] = partition.leader_id
    return dict(sorted(found.items()))


def by_leader(known: Mapping[Partition, int], wanted: Iterable[P]) -> dict[int, list[P]]:
    """Partitions by their leaders. ApiException for one that does not exist or has no leader."""
    wanted = list(wanted)
    missing = [partition for partition in wanted if partition not in known]
    if missing:
        shown = ",".join(f"{topic}-{number}" for topic, number in missing)
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{shown}" do not exist')
    leaderless = [partition for partition in wanted if known[partition] < 0]
    if leaderless:
        shown = ",".join(f"{topic}-{number}" for topic, number in leaderless)
        raise ApiException(ErrorCode.LEADER_NOT_AVAILABLE, f'The partitions "{shown}" have no leader')
    found: dict[int, list[P]] = {}
    for partition in wanted:
        found.setdefault(known[partition], []).append(partition)
    return found


def grouped_by_leader(cluster: Cluster, partitions: Iterable[P]) -> dict[int, list[P]]:
    """The same, with the leaders that the cluster has now."""
    wanted = list(partitions)
    return by_leader(leaders(cluster, (topic for topic, _ in wanted)), wanted)


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[P, int],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Partition, FoundOffset]:
    """What each partition's leader has at a timestamp, or at an `OffsetSpec`."""
    times: dict[Partition, int] = dict(wanted.items())
    found: dict[Partition, FoundOffset] = {}
    kind = ListOffsetsRequest
    for leader, partitions in grouped_by_leader(cluster, times).items():
        request = kind(
            replica_id=_CONSUMER,
            isolation_level=isolation_level,
            topics=[
                kind.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        kind.ListOffsetsPartition(partition_index=number, timestamp=times[topic, number])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        for topic in cluster.ask(request, leader).topics:
            for each in topic.partitions:
                found[topic.name, each.partition_index] = FoundOffset(
                    each.offset, each.timestamp, each.leader_epoch, ErrorCode.of(each.error_code)
                )
    return dict(sorted(found.items()))


def find_offsets(
    cluster: Cluster,
    wanted: Mapping[P, int],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[Partition, FoundOffset]:
    """The same without errors: retried while leaders move, and then ApiException if one leader refuses."""

    def ask() -> dict[Partition, FoundOffset]:
        found = list_offsets(cluster, wanted, isolation_level)
        for (topic, number), each in found.items():
            raise_for(each.error, None, f"{topic}-{number}")
        return found

    return cluster.retrying(ask, timeout_s) if wanted else {}


def offsets_at(cluster: Cluster, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
    """The offsets of all partitions at one timestamp or `OffsetSpec`."""
    found = find_offsets(cluster, dict.fromkeys(partitions, timestamp))
    return {partition: each.offset for partition, each in found.items()}


def delete_records(
    cluster: Cluster,
    offsets: Mapping[P, int],
    *,
    broker_id: int | None = None,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> list[DeleteRecordsResponse]:
    """Delete the records before an offset of each partition, -1 for all: the response of each leader.

    `broker_id` names the leader of all these partitions if the caller knows it.
    """
    before: dict[Partition, int] = dict(offsets.items())
    grouped = grouped_by_leader(cluster, before) if broker_id is None else {broker_id: list(before)}
    kind = DeleteRecordsRequest
    responses = []
    for leader, partitions in grouped.items():
        request = kind(
            topics=[
                kind.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        kind.DeleteRecordsPartition(partition_index=number, offset=before[topic, number])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            timeout_ms=timeout_ms,
        )
        responses.append(cluster.ask(request, leader))
    return responses


def elect_leaders(
    cluster: Cluster,
    election: ElectionType,
    partitions: Iterable[Partition] | None = None,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> ElectLeadersResponse:
    """Elect leaders of some partitions, or of all that need an election for None."""
    kind = ElectLeadersRequest
    topics = None
    if partitions is not None:
        topics = [
            kind.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    return cluster.ask(kind(election_type=election, topic_partitions=topics, timeout_ms=timeout_ms))
