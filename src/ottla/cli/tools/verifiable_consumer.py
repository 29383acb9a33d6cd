"""`ottla verifiable-consumer`: reads a topic and prints events as lines of JSON, as kafka-verifiable-consumer does."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.verifiable_producer import print_event

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

    from ottla.client.engine_types import EngineMessage

_POLL_S: Final = 0.2
_AT_ONCE: Final = 500


class VerifiableConsumerFlags(Flags):
    """The flags of `ottla verifiable-consumer`."""

    topic: str
    group_id: str
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    max_messages: int
    session_timeout: int | None
    verbose: bool
    enable_autocommit: bool
    reset_policy: str
    assignment_strategy: str | None
    consumer_config: str | None


@tool(
    "verifiable-consumer",
    click.option("--topic", metavar="NAME", help="The topic to read."),
    click.option("--group-id", metavar="NAME", help="The group to read as."),
    click.option("--group-instance-id", metavar="NAME", help="The member's name that outlives a restart."),
    click.option("--group-protocol", default="classic", metavar="PROTOCOL", help="classic or consumer."),
    click.option("--group-remote-assignor", metavar="NAME", help="The assignor of a consumer group."),
    click.option(
        "--max-messages", type=int, default=-1, metavar="COUNT", help="How many; -1: until it is stopped."
    ),
    click.option("--session-timeout", type=int, metavar="MS", help="The session timeout of a classic group."),
    click.option("--verbose", is_flag=True, help="Print each record."),
    click.option("--enable-autocommit", is_flag=True, help="Let the client commit offsets."),
    click.option(
        "--reset-policy", default="earliest", metavar="POLICY", help="Where to begin without offsets."
    ),
    click.option("--assignment-strategy", metavar="CLASS", help="The assignor of a classic group."),
    click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old for --command-config."),
)
def verifiable_consumer(session: Session, flags: VerifiableConsumerFlags) -> None:
    """Read a topic and print records, commits and rebalances."""
    require(flags, "topic", "group_id")
    engine.require_broker(session)
    client = engine.consumer(engine.settings(session, _properties(flags)))
    with engine.translated_errors():
        _Run(flags, client).run()


def _properties(flags: VerifiableConsumerFlags) -> dict[str, str]:
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.consumer_config) if flags.consumer_config else {}
    properties |= {
        "group.id": flags.group_id,
        "auto.offset.reset": flags.reset_policy,
        "enable.auto.commit": str(flags.enable_autocommit).lower(),
        "group.protocol": flags.group_protocol.lower(),
    }
    if flags.group_instance_id:
        properties["group.instance.id"] = flags.group_instance_id
    if flags.group_protocol.lower() == "consumer":
        if flags.group_remote_assignor:
            properties["group.remote.assignor"] = flags.group_remote_assignor
        return properties
    properties["partition.assignment.strategy"] = flags.assignment_strategy or "range"
    if flags.session_timeout is not None:
        properties["session.timeout.ms"] = str(flags.session_timeout)
    return properties


class _Run:
    """One run, until it has enough or is asked to stop."""

    def __init__(self, flags: VerifiableConsumerFlags, client: Consumer) -> None:
        self._flags = flags
        self._client = client
        self._count = 0
        self._stopped = False

    def run(self) -> None:
        flags = self._flags
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        print_event("startup_complete")
        self._client.list_topics(flags.topic, timeout=engine.METADATA_TIMEOUT_S)
        self._client.subscribe(
            [flags.topic],
            on_assign=lambda _, partitions: self._print_partitions("partitions_assigned", partitions),
            on_revoke=lambda _, partitions: self._print_partitions("partitions_revoked", partitions),
        )
        try:
            while not self._stopped and (flags.max_messages < 0 or self._count < flags.max_messages):
                left = _AT_ONCE if flags.max_messages < 0 else min(_AT_ONCE, flags.max_messages - self._count)
                self._take(engine.received(self._client.consume(left, _POLL_S)))
        finally:
            self._client.close()
            print_event("shutdown_complete")

    def _stop(self, *_: object) -> None:
        if not self._stopped:
            print_event("shutdown_requested")
        self._stopped = True

    @staticmethod
    def _print_partitions(name: str, partitions: list[TopicPartition]) -> None:
        print_event(
            name, partitions=[{"topic": each.topic, "partition": each.partition} for each in partitions]
        )

    def _take(self, records: list[EngineMessage]) -> None:
        by_partition: dict[tuple[str, int], list[EngineMessage]] = {}
        for record in records:
            engine.check(record)
            by_partition.setdefault((record.topic(), record.partition()), []).append(record)
        if not records:
            return
        for record in records if self._flags.verbose else ():
            about = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
            print_event("record_data", key=_text(record.key()), value=_text(record.value()), **about)
        self._count += len(records)
        summaries = [
            {
                "topic": topic,
                "partition": number,
                "count": len(own),
                "minOffset": own[0].offset(),
                "maxOffset": own[-1].offset(),
            }
            for (topic, number), own in by_partition.items()
        ]
        print_event("records_consumed", count=len(records), partitions=summaries)
        if not self._flags.enable_autocommit:
            self._commit({partition: own[-1].offset() + 1 for partition, own in by_partition.items()})

    def _commit(self, offsets: dict[tuple[str, int], int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        entries = [
            {"topic": each.topic, "partition": each.partition, "offset": each.offset} for each in wanted
        ]
        try:
            self._client.commit(offsets=wanted, asynchronous=False)
            print_event("offsets_committed", offsets=entries, success=True)
        except KafkaException as error:
            print_event("offsets_committed", offsets=entries, error=error.args[0].str(), success=False)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
