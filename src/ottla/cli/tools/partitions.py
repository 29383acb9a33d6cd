"""Partitions and their offsets: who leads them, where they begin and end, what lies at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cli.tools.failures import UsageProblem, raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

Partition = tuple[str, int]
"""A topic's name and a partition's number."""

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """What a leader says to a question about offsets; the offset is -1 where there is none."""

    offset: int
    timestamp: int
    leader_epoch: int
    error: ErrorCode


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
            raise_for(topic.error_code, None, topic.name)
        for partition in topic.partitions:
            found[topic.name, partition.partition_index] = partition.leader_id
    return dict(sorted(found.items()))


def by_leader(known: Mapping[Partition, int], wanted: Iterable[Partition]) -> dict[int, list[Partition]]:
    """Partitions by their leaders. ApiException for one that does not exist or has no leader."""
    missing = [partition for partition in wanted if partition not in known]
    if missing:
        shown = ",".join(f"{topic}-{number}" for topic, number in missing)
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{shown}" do not exist')
    headless = [partition for partition in wanted if known[partition] < 0]
    if headless:
        shown = ",".join(f"{topic}-{number}" for topic, number in headless)
        raise ApiException(ErrorCode.LEADER_NOT_AVAILABLE, f'The partitions "{shown}" have no leader')
    found: dict[int, list[Partition]] = {}
    for partition in wanted:
        found.setdefault(known[partition], []).append(partition)
    return found


def list_offsets(cluster: Cluster, wanted: Mapping[Partition, int]) -> dict[Partition, FoundOffset]:
    """What each partition's leader has at a time, or at one of the special times above."""
    known = leaders(cluster, (topic for topic, _ in wanted))
    found: dict[Partition, FoundOffset] = {}
    kind = ListOffsetsRequest
    for leader, partitions in by_leader(known, list(wanted)).items():
        request = kind(
            replica_id=-1,
            topics=[
                kind.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        kind.ListOffsetsPartition(partition_index=number, timestamp=wanted[topic, number])
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


def offsets_at(cluster: Cluster, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
    """The same question to all partitions; ApiException where a leader cannot tell."""

    def ask() -> dict[Partition, int]:
        found = list_offsets(cluster, dict.fromkeys(partitions, timestamp))
        for (topic, number), each in found.items():
            raise_for(each.error, None, f"{topic}-{number}")
        return {partition: each.offset for partition, each in found.items()}

    partitions = list(partitions)
    answer: dict[Partition, int] = cluster.retrying(ask) if partitions else {}
    return answer


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


def parse_partitions(cluster: Cluster, words: Iterable[str]) -> list[Partition]:
    """Partitions from words like `orders` (all of them) and `orders:0,2`."""
    words = list(words)
    chosen: list[Partition] = []
    for word in words:
        topic, colon, numbers = word.partition(":")
        if colon:
            chosen += [(topic, _number(number, word)) for number in numbers.split(",")]
    chosen += leaders(cluster, [word for word in words if ":" not in word])
    return chosen


def _number(text: str, word: str) -> int:
    if not text.strip().isdecimal():
        raise UsageProblem(f"--topic {word}: '{text}' is not the number of a partition")
    return int(text)
