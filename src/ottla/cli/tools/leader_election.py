"""`ottla leader-election`: what kafka-leader-election does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.admin.errors import describe_error, raise_for
from ottla.admin.partitions import Partition, elect_leaders
from ottla.cli.tools.base import Flags, Session, exactly_one, only_with, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import parse_int
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ElectionType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


class LeaderElectionFlags(Flags):
    """The flags of `ottla leader-election`."""

    election_type: str
    topic: str | None
    partition: str | None
    all_topic_partitions: bool
    path_to_json_file: str | None


@tool(
    "leader-election",
    click.option("--election-type", metavar="TYPE", help="preferred or unclean."),
    click.option("--topic", metavar="NAME", help="The topic of one partition."),
    click.option("--partition", metavar="NUMBER", help="With --topic: the number of the partition."),
    click.option("--all-topic-partitions", is_flag=True, help="All partitions for which it has a meaning."),
    click.option("--path-to-json-file", metavar="FILE", help="A file that names partitions."),
    aliases={"--admin.config": "--command-config"},
)
def leader_election(session: Session, flags: LeaderElectionFlags) -> None:
    """Elect leaders: the preferred replicas, or with `unclean` any that is left, at the price of lost records."""
    require(flags, "election_type")
    name = flags.election_type.upper()
    if name not in ElectionType.__members__:
        raise click.UsageError(f"--election-type {flags.election_type}: expected preferred or unclean")
    exactly_one(flags, "topic", "all_topic_partitions", "path_to_json_file")
    only_with(flags, "partition", "topic")
    if flags.topic:
        require(flags, "partition")
    results = _elect(session.cluster, ElectionType[name], _wanted(flags))
    elected = [each for each, (code, _) in results.items() if code == ErrorCode.NONE]
    already = [each for each, (code, _) in results.items() if code == ErrorCode.ELECTION_NOT_NEEDED]
    failed = {each: result for each, result in results.items() if each not in elected and each not in already}
    if elected:
        session.print(f"Successfully completed leader election ({name}) for partitions {_named(elected)}")
    if already:
        session.print(f"Valid replica already elected for partitions {_named(already)}")
    for each, (code, message) in failed.items():
        session.error(
            f"Error completing leader election ({name}) for partition: {each[0]}-{each[1]}:"
            f" {describe_error(code, message)}"
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


def _wanted(flags: LeaderElectionFlags) -> list[Partition] | None:
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
    cluster: Cluster, election: ElectionType, wanted: list[Partition] | None
) -> dict[Partition, tuple[int, str | None]]:
    """The result of each election; for all partitions only of those that had one."""
    response = elect_leaders(cluster, election, wanted)
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise ApiException(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to perform leader election"
        )
    raise_for(response.error_code)
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }
