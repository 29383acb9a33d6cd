"""`ottla log-dirs`: what kafka-log-dirs does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ottla.admin.errors import raise_for
from ottla.admin.log_dirs import describe_log_dirs
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


class LogDirsFlags(Flags):
    """The flags of `ottla log-dirs`."""

    describe: bool
    topic_list: str
    broker_list: str


@tool(
    "log-dirs",
    click.option("--describe", is_flag=True, help="Show the log directories of brokers."),
    click.option("--topic-list", default="", metavar="NAME,...", help="Only these topics."),
    click.option("--broker-list", default="", metavar="ID,...", help="Only these brokers."),
    broker_list=False,
)
def log_dirs(session: Session, flags: LogDirsFlags) -> None:
    """Show the log directories of brokers and the sizes of their partitions."""
    require(flags, "describe")
    topics = {word for word in flags.topic_list.split(",") if word}
    brokers = _brokers(session, flags.broker_list)
    session.print("Querying brokers for log directories information")
    found = [{"broker": node, "logDirs": _directories(session.cluster, node, topics)} for node in brokers]
    session.print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
    # The same document in both forms; Kafka prints it without spaces.
    click.echo(json.dumps({"brokers": found, "version": 1}, separators=(",", ":")))


def _brokers(session: Session, text: str) -> list[int]:
    known = sorted(session.cluster.nodes())
    words = [word.strip() for word in text.split(",") if word.strip()]
    strangers = [word for word in words if not word.isdecimal() or int(word) not in known]
    if strangers:
        there = ",".join(map(str, known))
        raise UsageProblem(f"--broker-list: there is no broker {','.join(strangers)}; there are {there}")
    return sorted({int(word) for word in words}) if words else known


def _directories(cluster: Cluster, node: int, topics: set[str]) -> list[dict[str, object]]:
    answer = describe_log_dirs(cluster, node)
    raise_for(answer.error_code)
    return [
        {
            "partitions": [
                {
                    "partition": f"{topic.name}-{each.partition_index}",
                    "size": each.partition_size,
                    "offsetLag": each.offset_lag,
                    "isFuture": each.is_future_key,
                }
                for topic in sorted(result.topics, key=lambda topic: str(topic.name))
                if not topics or topic.name in topics
                for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
            ],
            "error": None if result.error_code == ErrorCode.NONE else ErrorCode.of(result.error_code).name,
            "logDir": result.log_dir,
        }
        for result in answer.results
    ]
