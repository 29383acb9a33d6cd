"""Plans for reassignments: read, check and propose them, and start what they describe."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import describe_error, raise_for
from ottla.admin.log_dirs import Replica, alter_replica_log_dirs, describe_log_dirs
from ottla.admin.partitions import Partition
from ottla.admin.reassignments import alter_reassignments
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import Document
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

ANY_DIRECTORY: Final = "any"

Assignment = dict[Partition, list[int]]
"""The brokers of each partition's replicas."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The brokers of each partition's replicas, and the directories of some replicas."""

    replicas: list[tuple[Partition, list[int]]]
    directories: dict[Replica, str]

    @property
    def topics(self) -> list[str]:
        return sorted({topic for (topic, _), _ in self.replicas})


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a replica, and the one that it moves to."""

    current: str | None = None
    future: str | None = None


def partition_name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def named(partitions: Iterable[Partition]) -> str:
    return ",".join(partition_name(each) for each in sorted(partitions))


def read_plan(file: str) -> Plan:
    """A plan from its JSON file."""
    document = _read_json(file)
    replicas: list[tuple[Partition, list[int]]] = []
    directories: dict[Replica, str] = {}
    for entry in document.get("partitions", []):
        try:
            topic, number = str(entry["topic"]), int(entry["partition"])
            brokers = [int(each) for each in entry["replicas"]]
            chosen = [str(each) for each in entry.get("log_dirs", [ANY_DIRECTORY] * len(brokers))]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageProblem(f"{file}: an entry lacks topic, partition or replicas ({error!r})") from None
        if len(chosen) != len(brokers):
            raise UsageProblem(
                f"Size of replicas list {brokers} is different from size of log dirs list {chosen} for"
                f" partition {topic}-{number}"
            )
        replicas.append(((topic, number), brokers))
        for broker, directory in zip(brokers, chosen, strict=True):
            if directory != ANY_DIRECTORY:
                directories[Replica(broker, topic, number)] = directory
    return Plan(replicas, directories)


def read_topics(file: str) -> list[str]:
    """The topics to plan for, from their JSON file."""
    try:
        topics = [str(entry["topic"]) for entry in _read_json(file).get("topics", [])]
    except (KeyError, TypeError):
        raise UsageProblem(f'{file}: expected {{"topics": [{{"topic": "orders"}}], "version": 1}}') from None
    repeated = sorted({topic for topic in topics if topics.count(topic) > 1})
    if repeated:
        raise UsageProblem(f"List of topics to reassign contains duplicate entries: {', '.join(repeated)}")
    return topics


def _read_json(file: str) -> Document:
    try:
        document = json.loads(Path(file).read_text())
    except ValueError as error:
        raise UsageProblem(f"{file} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageProblem(f"{file}: expected a JSON object")
    version = document.get("version", 1)
    if version != 1:
        raise UsageProblem(f"{file}: Not supported version field value {version}")
    return document


def check_plan(plan: Plan) -> Assignment:
    """The plan's assignment; a plan that contradicts itself is refused."""
    if not plan.replicas:
        raise UsageProblem("Partition reassignment list cannot be empty")
    if any(not brokers for _, brokers in plan.replicas):
        raise UsageProblem("Partition replica list cannot be empty")
    partitions = [partition for partition, _ in plan.replicas]
    repeated = {partition for partition in partitions if partitions.count(partition) > 1}
    if repeated:
        raise UsageProblem(f"Partition reassignment contains duplicate topic partitions: {named(repeated)}")
    for partition, brokers in plan.replicas:
        if len(set(brokers)) != len(brokers):
            raise UsageProblem(
                f"Partition replica lists may not contain duplicate entries: {partition_name(partition)} has"
                f" {','.join(map(str, brokers))}"
            )
    return dict(plan.replicas)


def as_document(assignment: Assignment, directories: Mapping[Replica, str]) -> dict[str, object]:
    """An assignment in the form that plans have."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "replicas": brokers,
                "log_dirs": [directories.get(Replica(b, topic, number), ANY_DIRECTORY) for b in brokers],
            }
            for (topic, number), brokers in sorted(assignment.items())
        ],
    }


def current_assignment(cluster: Cluster, topics: Iterable[str]) -> Assignment:
    """The replicas of all partitions of topics."""
    found: Assignment = {}
    wanted = sorted(set(topics))
    for topic in cluster.metadata(wanted).topics if wanted else ():
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} not found.")
        for each in topic.partitions:
            found[topic.name or "", each.partition_index] = [*each.replica_nodes]
    return found


def start_reassignments(
    cluster: Cluster, wanted: Mapping[Partition, list[int] | None], *, same_factor: bool = False
) -> dict[Partition, str]:
    """Start reassignments, or cancel them for None: the errors by partition."""
    results = alter_reassignments(cluster, wanted, allow_factor_change=not same_factor)
    return {
        partition: describe_error(code, message)
        for partition, (code, message) in results.items()
        if code != ErrorCode.NONE
    }


def find_directories(cluster: Cluster, replicas: Iterable[Replica]) -> dict[Replica, Place]:
    """The directories of replicas, from the brokers that hold them."""
    by_broker: dict[int, list[Replica]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.broker, []).append(replica)
    found: dict[Replica, Place] = {}
    for broker, wanted in sorted(by_broker.items()):
        partitions = [(each.topic, each.partition) for each in wanted]
        places = dict.fromkeys(wanted, Place())
        for result in describe_log_dirs(cluster, broker, partitions).results:
            for topic in result.topics:
                for each in topic.partitions:
                    replica = Replica(broker, topic.name, each.partition_index)
                    known = places.get(replica, Place())
                    places[replica] = (
                        Place(known.current, result.log_dir)
                        if each.is_future_key
                        else Place(result.log_dir, known.future)
                    )
        found |= {replica: places[replica] for replica in wanted}
    return found


def move_directories(cluster: Cluster, wanted: Mapping[Replica, str]) -> set[Replica]:
    """Start to move replicas to directories: those that the brokers already have. ApiException for other errors."""
    started: set[Replica] = set()
    for replica, code in alter_replica_log_dirs(cluster, wanted).items():
        if code == ErrorCode.NONE:
            started.add(replica)
        elif code != ErrorCode.REPLICA_NOT_AVAILABLE:
            raise_for(code, None, f"Failed to alter dir for {replica}")
    return started


def propose(
    current: Assignment,
    brokers: Sequence[tuple[int, str | None]],
    start: Callable[[int], int] = random.randrange,
) -> Assignment:
    """A new place for every partition: spread evenly over the brokers, each replica in another rack if possible."""
    ring = _interleaved(brokers)
    racks = dict(brokers)
    proposed: Assignment = {}
    for topic in sorted({topic for topic, _ in current}):
        numbers = sorted(number for each, number in current if each == topic)
        factor = len(current[topic, numbers[0]])
        if factor > len(ring):
            raise UsageProblem(
                f"topic '{topic}' has {factor} replicas per partition, but only {len(ring)} brokers are given"
            )
        first = start(len(ring))
        for number in numbers:
            turn = first + number
            # Each time round, the followers shift by one more, so that they differ from leader to leader.
            shift = number // len(ring)
            rest = [ring[(turn + 1 + shift + step) % len(ring)] for step in range(len(ring))]
            chosen = [ring[turn % len(ring)]]
            while len(chosen) < factor:
                left = [broker for broker in rest if broker not in chosen]
                used = {racks[broker] for broker in chosen}
                chosen.append(next((each for each in left if racks[each] not in used), left[0]))
            proposed[topic, number] = chosen
    return proposed


def _interleaved(brokers: Sequence[tuple[int, str | None]]) -> list[int]:
    """Brokers so that neighbours are of different racks."""
    racks: dict[str | None, list[int]] = {}
    for broker, rack in sorted(brokers, key=lambda each: each[0]):
        racks.setdefault(rack, []).append(broker)
    ring: list[int] = []
    while any(racks.values()):
        ring += [members.pop(0) for members in racks.values() if members]
    return ring
