"""`ottla leader-election`: what kafka-leader-election does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools.base import Flags, Session, exactly_one, only_with, require, tool
from ottla.cli.tools.failures import UsageProblem, describe, raise_for
from ottla.cli.tools.partitions import Partition, by_topic
from ottla.cli.tools.values import parse_int
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import ElectLeadersRequest

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_TYPES: Final = {"PREFERRED": 0, "UNCLEAN": 1}
_TIMEOUT_MS: Final = 30_000


@tool(
    "leader-election",
    click.option("--election-type", metavar="TYPE", help="preferred or unclean."),
    click.option("--topic", metavar="NAME", help="The topic of one partition."),
    click.option("--partition", metavar="NUMBER", help="With --topic: the number of the partition."),
    click.option("--all-topic-partitions", is_flag=True, help="All partitions for which it has a meaning."),
    click.option("--path-to-json-file", metavar="FILE", help="A file that names partitions."),
    aliases={"--admin.config": "--command-config"},
)
def leader_election(session: Session, flags: Flags) -> None:
    """Elect leaders anew: the preferred ones, or at the price of lost records any that is left."""
    require(flags, "election_type")
    name = flags.election_type.upper()
    if name not in _TYPES:
        raise click.UsageError(f"--election-type {flags.election_type}: expected preferred or unclean")
    exactly_one(flags, "topic", "all_topic_partitions", "path_to_json_file")
    only_with(flags, "partition", "topic")
    if flags.topic:
        require(flags, "partition")
    results = _elect(session.cluster, _TYPES[name], _wanted(flags))
    elected = [each for each, (code, _) in results.items() if code == ErrorCode.NONE]
    already = [each for each, (code, _) in results.items() if code == ErrorCode.ELECTION_NOT_NEEDED]
    failed = {each: told for each, told in results.items() if each not in elected and each not in already}
    if elected:
        session.say(f"Successfully completed leader election ({name}) for partitions {_named(elected)}")
    if already:
        session.say(f"Valid replica already elected for partitions {_named(already)}")
    for each, (code, message) in failed.items():
        session.complain(
            f"Error completing leader election ({name}) for partition: {each[0]}-{each[1]}:"
            f" {describe(code, message)}"
        )
    if session.as_json:
        session.dump(
            [
                {"topic": topic, "partition": number, "result": ErrorCode.of(code).name}
                for (topic, number), (code, _) in results.items()
            ]
        )


def _named(partitions: list[Partition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in partitions)


def _wanted(flags: Flags) -> list[Partition] | None:
    if flags.topic:
        return [(flags.topic, parse_int("--partition", flags.partition))]
    return _read(flags.path_to_json_file) if flags.path_to_json_file else None


def _read(file: str) -> list[Partition]:
    try:
        document = json.loads(Path(file).read_text())
        partitions = [(str(each["topic"]), int(each["partition"])) for each in document["partitions"]]
    except (ValueError, KeyError, TypeError):
        raise UsageProblem(
            f'{file}: expected JSON like {{"partitions": [{{"topic": "orders", "partition": 1}}]}}'
        ) from None
    repeated = sorted({each for each in partitions if partitions.count(each) > 1})
    if repeated:
        raise UsageProblem(f"Replica election data contains duplicate partitions: {_named(repeated)}")
    return partitions


def _elect(
    cluster: Cluster, election: int, wanted: list[Partition] | None
) -> dict[Partition, tuple[int, str | None]]:
    """What came of each election; for all partitions only those that had one."""
    kind = ElectLeadersRequest
    topics = None
    if wanted is not None:
        topics = [
            kind.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(wanted).items()
        ]
    answer = cluster.ask(kind(election_type=election, topic_partitions=topics, timeout_ms=_TIMEOUT_MS))
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise ApiException(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to perform leader election"
        )
    raise_for(answer.error_code)
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
