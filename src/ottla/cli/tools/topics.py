"""`ottla topics`: what kafka-topics does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.configs import ConfigEntry, describe_configs
from ottla.admin.errors import raise_for
from ottla.admin.reassignments import Reassignment, list_reassignments
from ottla.admin.topics import (
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_all_of,
    describe_topics,
)
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, only_with, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import Document
from ottla.cli.tools.names import topic_names
from ottla.cli.tools.values import parse_int
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ConfigResourceType
from ottla.wire.uuid import ZERO_UUID, uuid_to_str

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.topics import DescribedPartition, DescribedTopic

_ACTIONS: Final = ("create", "list", "alter", "describe", "delete")
_REPORTS: Final = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)


class TopicsFlags(Flags):
    """The flags of `ottla topics`."""

    list: bool
    create: bool
    describe: bool
    alter: bool
    delete: bool
    topic: str | None
    topic_id: str | None
    partitions: str | None
    replication_factor: str | None
    replica_assignment: str | None
    config: tuple[str, ...]
    delete_config: tuple[str, ...]
    if_not_exists: bool
    if_exists: bool
    exclude_internal: bool
    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    partition_size_limit_per_response: str | None


@tool(
    "topics",
    click.option("--list", "list", is_flag=True, help="List the topics."),
    click.option("--create", is_flag=True, help="Create a topic."),
    click.option("--describe", is_flag=True, help="Show topics with their partitions."),
    click.option("--alter", is_flag=True, help="Give topics more partitions."),
    click.option("--delete", is_flag=True, help="Delete topics."),
    click.option(
        "--topic", metavar="NAME", help="The topic; a regular expression everywhere but with --create."
    ),
    click.option("--topic-id", metavar="ID", help="The topic to describe, by its id."),
    click.option("--partitions", metavar="COUNT", help="The number of partitions."),
    click.option("--replication-factor", metavar="COUNT", help="How many replicas each partition has."),
    click.option(
        "--replica-assignment", metavar="ID:ID,ID:ID,...", help="The brokers of each partition's replicas."
    ),
    click.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting of the new topic."),
    click.option("--delete-config", multiple=True, metavar="KEY", hidden=True),
    click.option("--if-not-exists", is_flag=True, help="Create: a topic that exists already is no error."),
    click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error."),
    click.option("--exclude-internal", is_flag=True, help="Leave Kafka's own topics out."),
    click.option("--topics-with-overrides", is_flag=True, help="Only topics with settings of their own."),
    click.option("--under-replicated-partitions", is_flag=True, help="Only partitions that lack a replica."),
    click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader."),
    click.option(
        "--under-min-isr-partitions", is_flag=True, help="Only partitions below min.insync.replicas."
    ),
    click.option("--at-min-isr-partitions", is_flag=True, help="Only partitions at min.insync.replicas."),
    click.option("--partition-size-limit-per-response", metavar="COUNT", help="Partitions per answer."),
)
def topics(session: Session, flags: TopicsFlags) -> None:
    """Create, delete, describe or change topics."""
    action = exactly_one(flags, *_ACTIONS)
    _check(flags, action)
    {"create": _create, "list": _list, "alter": _alter, "describe": _describe, "delete": _delete}[action](
        session, flags
    )


def _check(flags: TopicsFlags, action: str) -> None:
    if action not in ("list", "describe"):
        require(flags, "topic")
    if action == "alter":
        not_with(flags, "config", "alter")
        require(flags, "partitions")
    if action == "describe" and flags.if_exists and not (flags.topic or flags.topic_id):
        raise click.UsageError("--topic or --topic-id is needed to describe a topic")
    for name, companions in (
        ("config", ("create",)),
        ("partitions", ("create", "alter")),
        ("replication_factor", ("create",)),
        ("replica_assignment", ("create", "alter")),
        ("topics_with_overrides", ("describe",)),
        ("if_exists", ("alter", "delete", "describe")),
        ("if_not_exists", ("create",)),
        ("exclude_internal", ("list", "describe")),
        *((report, ("describe",)) for report in _REPORTS),
    ):
        only_with(flags, name, *companions)
    if action == "create":
        not_with(flags, "replica_assignment", "partitions", "replication_factor")
    not_with(flags, "topics_with_overrides", *_REPORTS)


def _list(session: Session, flags: TopicsFlags) -> None:
    names = topic_names(session.cluster, flags.topic, exclude_internal=flags.exclude_internal)
    session.result(names, names or [""])


def _create(session: Session, flags: TopicsFlags) -> None:
    partitions = parse_int("--partitions", flags.partitions, -1)
    factor = parse_int("--replication-factor", flags.replication_factor, -1)
    if flags.partitions is not None and partitions < 1:
        raise UsageProblem("--partitions must be greater than 0")
    if flags.replication_factor is not None and not 1 <= factor <= 32767:
        raise UsageProblem("--replication-factor must be between 1 and 32767")
    assert flags.topic is not None
    if "." in flags.topic or "_" in flags.topic:
        session.print(
            "WARNING: Metric names have '_' in the place of '.': topics that differ in nothing else would share"
            " theirs. Use one of the two, not both."
        )
    topic = NewTopic(flags.topic, partitions, factor, topic_configs=_pairs(flags.config))
    if flags.replica_assignment:
        topic.replica_assignments = dict(enumerate(parse_assignment(flags.replica_assignment)))
    answer = create_topics(session.cluster, [topic]).topics[0]
    if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and flags.if_not_exists:
        return
    raise_for(answer.error_code, answer.error_message)
    session.result({"created": flags.topic}, [f"Created topic {flags.topic}."])


def _pairs(words: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise UsageProblem(f"--config {word}: expected KEY=VALUE")
        pairs[key] = value
    return pairs


def parse_assignment(text: str) -> list[list[int]]:
    """The brokers of each partition, as in `1:2,2:3`."""
    assignment = [
        [parse_int("--replica-assignment", word) for word in part.split(":")] for part in text.split(",")
    ]
    for index, brokers in enumerate(assignment):
        if len(set(brokers)) != len(brokers):
            raise UsageProblem(f"--replica-assignment: partition {index} names a broker twice: {brokers}")
        if len(brokers) != len(assignment[0]):
            raise UsageProblem(f"--replica-assignment: partition {index} has another number of replicas")
    return assignment


def _existing(session: Session, flags: TopicsFlags) -> list[str]:
    """The topics that the flags name; ApiException if there are none and --if-exists is not given."""
    names = topic_names(session.cluster, flags.topic, exclude_internal=flags.exclude_internal)
    if flags.topic and not names and not flags.if_exists:
        raise ApiException(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic '{flags.topic}' does not exist as expected; `ottla topics --list` shows what there is",
        )
    return names


def _alter(session: Session, flags: TopicsFlags) -> None:
    count = parse_int("--partitions", flags.partitions)
    names = _existing(session, flags)
    wanted: dict[str, NewPartitions] = {}
    for topic in session.cluster.metadata(names).topics if names else ():
        change = NewPartitions(count)
        if flags.replica_assignment:
            change.new_assignments = parse_assignment(flags.replica_assignment)[len(topic.partitions) :]
        wanted[topic.name or ""] = change
    if not wanted:
        return
    for result in create_partitions(session.cluster, wanted).results:
        raise_for(result.error_code, result.error_message)
    session.result({"altered": names}, [])


def _delete(session: Session, flags: TopicsFlags) -> None:
    names = _existing(session, flags)
    if not names:
        return
    delete_all_of(session.cluster, names)
    session.result({"deleted": names}, [])


@dataclass(slots=True)
class _Described:
    """A topic with what the lines about it need."""

    topic: DescribedTopic
    configs: list[ConfigEntry]
    reassignments: dict[int, Reassignment]

    @property
    def overrides(self) -> list[ConfigEntry]:
        return [entry for entry in self.configs if not entry.is_default]

    def min_isr(self) -> int:
        return next(
            (int(entry.value or 1) for entry in self.configs if entry.name == "min.insync.replicas"), 1
        )

    def replication_factor(self, partition: DescribedPartition) -> int:
        moving = self.reassignments.get(partition.partition_index)
        if moving is not None and {*partition.replica_nodes} & {*moving.adding, *moving.removing}:
            return len(moving.replicas) - len(moving.adding)
        return len(partition.replica_nodes)


def _describe(session: Session, flags: TopicsFlags) -> None:
    cluster = session.cluster
    names = _names_by_id(session, flags) if flags.topic_id else _existing(session, flags)
    limit = parse_int("--partition-size-limit-per-response", flags.partition_size_limit_per_response, 2000)
    # Only Metadata finds topics by their ids. It has no eligible leader replicas: Kafka's tool shows N/A.
    described = describe_topics(cluster, names, limit, eligible=flags.topic_id is None) if names else []
    configs = describe_configs(cluster, [(ConfigResourceType.TOPIC, name) for name in names]) if names else {}
    moving = _reassignments(cluster, described)
    reports = [report for report in _REPORTS if getattr(flags, report)]
    documents: list[Document] = []
    lines: list[str] = []
    for topic in described:
        name = topic.name or ""
        about = _Described(topic, configs[ConfigResourceType.TOPIC, name], moving.get(name, {}))
        if flags.topics_with_overrides and not about.overrides:
            continue
        shown = [p for p in topic.partitions if _shown(p, about, reports, cluster)]
        if not reports:
            lines.append(_topic_line(about))
        if not flags.topics_with_overrides:
            lines += [_partition_line(name, partition, about) for partition in shown]
        if shown or not reports:
            documents.append(_document(about, shown))
    if session.at_terminal:
        _show_tables(documents)
    else:
        session.result(documents, lines)


def _show_tables(documents: list[Document]) -> None:
    """Each topic for a person: a line about it, and its partitions as a table."""
    from ottla.cli.tools import tables

    for topic in documents:
        settings = "".join(f"  {key}={value}" for key, value in topic["configs"].items())
        count, factor = topic["partitionCount"], topic["replicationFactor"]
        title = click.style(str(topic["topic"]), bold=True)
        click.echo(f"{title}  {count} partitions, {factor} replicas each{settings}")
        rows = [
            [each["partition"], each["leader"], each["replicas"], each["isr"], _trouble(each)]
            for each in topic["partitions"]
        ]
        tables.show(["partition", "leader", "replicas", "in sync", "note"], rows)


def _trouble(partition: Document) -> str:
    if partition["leader"] is None:
        return "no leader"
    missing = [each for each in partition["replicas"] if each not in partition["isr"]]
    return f"waits for {', '.join(map(str, missing))}" if missing else ""


def _names_by_id(session: Session, flags: TopicsFlags) -> list[str]:
    for topic in session.cluster.metadata().topics:
        if uuid_to_str(topic.topic_id) == flags.topic_id:
            return [topic.name or ""]
    if flags.if_exists:
        return []
    raise ApiException(ErrorCode.UNKNOWN_TOPIC_ID, f"TopicId '{flags.topic_id}' does not exist as expected")


def _reassignments(cluster: Cluster, described: list[DescribedTopic]) -> dict[str, dict[int, Reassignment]]:
    if not described or not cluster.supports(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        return {}
    wanted = [
        (topic.name or "", partition.partition_index) for topic in described for partition in topic.partitions
    ]
    found: dict[str, dict[int, Reassignment]] = {}
    for (topic, number), each in list_reassignments(cluster, wanted).items():
        found.setdefault(topic, {})[number] = each
    return found


def _shown(partition: DescribedPartition, about: _Described, reports: list[str], cluster: Cluster) -> bool:
    if not reports:
        return True
    has_leader = partition.leader_id >= 0
    verdicts = {
        "under_replicated_partitions": about.replication_factor(partition) > len(partition.isr_nodes),
        "unavailable_partitions": not has_leader or partition.leader_id not in cluster.nodes(),
        "under_min_isr_partitions": not has_leader or len(partition.isr_nodes) < about.min_isr(),
        "at_min_isr_partitions": len(partition.isr_nodes) == about.min_isr(),
    }
    return any(verdicts[report] for report in reports)


def _topic_line(about: _Described) -> str:
    topic = about.topic
    words = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        words.append(f"TopicId: {uuid_to_str(topic.topic_id)}")
    configs = ",".join(f"{entry.name}={entry.value}" for entry in about.overrides)
    factor = about.replication_factor(topic.partitions[0])
    words += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(words)


def _partition_line(name: str, partition: DescribedPartition, about: _Described) -> str:
    leader = partition.leader_id if partition.leader_id >= 0 else "none"
    words = [
        f"\tTopic: {name}",
        f"Partition: {partition.partition_index}",
        f"Leader: {leader}",
        f"Replicas: {_ids(partition.replica_nodes)}",
        f"Isr: {_ids(partition.isr_nodes)}",
    ]
    moving = about.reassignments.get(partition.partition_index)
    if moving is not None:
        words.append(f"Adding Replicas: {_ids(moving.adding)}")
        words.append(f"Removing Replicas: {_ids(moving.removing)}")
    words.append(f"Elr: {_ids(partition.eligible_leader_replicas)}")
    words.append(f"LastKnownElr: {_ids(partition.last_known_elr)}")
    return "\t".join(words)


def _ids(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def _document(about: _Described, partitions: list[DescribedPartition]) -> Document:
    return {
        "topic": about.topic.name,
        "topicId": uuid_to_str(about.topic.topic_id),
        "partitionCount": len(about.topic.partitions),
        "replicationFactor": about.replication_factor(about.topic.partitions[0]),
        "configs": {entry.name: entry.value for entry in about.overrides},
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id if partition.leader_id >= 0 else None,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "elr": partition.eligible_leader_replicas,
                "lastKnownElr": partition.last_known_elr,
            }
            for partition in partitions
        ],
    }
