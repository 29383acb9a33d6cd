"""Queues with Apache Kafka's own tools: the console share consumer, share-groups, and the two test consumers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.share_member import ACCEPT, REJECT, RELEASE, ShareMember, acquired
from integration.test_share_wire import make, produce
from oracle.kafka_tools import needs_java, run_tool
from ottla.errors import ErrorCode
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def queue(broker: BrokerProcess, topic: str) -> Iterator[str]:
    """A topic of two partitions with 100 and 50 records, and a share group of its name that begins with the first."""
    make(broker, topic, partitions=2)
    produce(broker, topic, 100)
    produce(broker, topic, 50, partition=1)
    yield topic


def share_groups(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool(
        f"{TOOLS}.consumer.group.ShareGroupCommand", "--bootstrap-server", broker.bootstrap, *arguments
    )


def consume(broker: BrokerProcess, queue: str, count: int) -> list[str]:
    said = run_tool(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", queue, "--group", queue),
        *("--max-messages", count, "--timeout-ms", 60000),
    )
    # A consumer says that it leaves, and does not wait for the answer.
    while not re.search(rf"^{queue}\s+Empty$", share_groups(broker, "--list", "--state"), re.MULTILINE):
        pass
    return [line for line in said.splitlines() if line.isdigit()]


def lags(broker: BrokerProcess, queue: str) -> dict[int, int]:
    """The lag of each partition, as the tool shows it."""
    said = share_groups(broker, "--describe", "--group", queue, "--offsets")
    rows = re.findall(rf"^{queue}\s+{queue}\s+(\d+)\s+\d+\s+(-?\d+)$", said, re.MULTILINE)
    return {int(partition): int(lag) for partition, lag in rows}


def test_console_share_consumer_goes_on_where_the_last_one_stopped(broker: BrokerProcess, queue: str) -> None:
    first = consume(broker, queue, 120)
    assert sum(lags(broker, queue).values()) == 30
    second = consume(broker, queue, 30)
    assert sorted(first + second, key=int) == sorted(map(str, [*range(100), *range(50)]), key=int)
    assert lags(broker, queue) == {0: 0, 1: 0}


def test_share_groups_are_listed_described_reset_and_deleted(broker: BrokerProcess, queue: str) -> None:
    assert len(consume(broker, queue, 150)) == 150
    state = share_groups(broker, "--describe", "--group", queue, "--state")
    assert re.search(rf"^{queue}\s+127\.0\.0\.1:{broker.port}\s+\(1\)\s+Empty\s+0$", state, re.MULTILINE)
    share_groups(broker, "--reset-offsets", "--group", queue, "--topic", queue, "--to-earliest", "--execute")
    assert lags(broker, queue) == {0: 100, 1: 50}
    assert len(consume(broker, queue, 150)) == 150
    said = share_groups(broker, "--delete-offsets", "--group", queue, "--topic", queue)
    assert re.search(rf"^{queue}\s+Successful$", said, re.MULTILINE)
    assert "was successful" in share_groups(broker, "--delete", "--group", queue)
    assert queue not in share_groups(broker, "--list").split()


def test_share_consumer_performance(broker: BrokerProcess, queue: str) -> None:
    said = run_tool(
        f"{TOOLS}.ShareConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", queue, "--group", queue),
        *("--num-records", 150, "--timeout", 60000),
    )
    assert said.splitlines()[-1].split(", ")[5] == "150"


def test_verifiable_share_consumer(broker: BrokerProcess, queue: str) -> None:
    said = run_tool(
        f"{TOOLS}.VerifiableShareConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", queue, "--group-id", f"{queue}-verified"),
        *("--max-messages", 150, "--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == 150


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    process = ApacheKafka(
        tmp_path / "kafka",
        settings={
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        },
    )
    process.format()
    yield process
    process.kill()


def test_a_queue_moves_from_kafka_to_ottla_and_back(kafka: ApacheKafka) -> None:
    """The state of share partitions and groups is Kafka's own records: each goes on where the other stopped."""
    queue = "moving"
    kafka.start()
    ottla = BrokerProcess(kafka.data, listen=kafka.bootstrap, arguments=["--config", str(kafka.properties)])
    host, _, port = kafka.bootstrap.rpartition(":")

    def join() -> ShareMember:
        return ShareMember(host, int(port), queue, queue).join()

    try:
        make(kafka, queue)
        produce(kafka, queue, 20)
        with contextlib.closing(join()) as member:
            assert acquired(first_of(member)) == [(0, 19, 1)]
            assert member.acknowledge(0, 3, [ACCEPT]) is ErrorCode.NONE
            assert member.acknowledge(6, 7, [REJECT]) is ErrorCode.NONE
            assert member.acknowledge(8, 8, [RELEASE]) is ErrorCode.NONE
            assert member.acknowledge(4, 19, [ACCEPT]) is ErrorCode.INVALID_RECORD_STATE
            member.leave()
        kafka.stop()

        ottla.start()
        with contextlib.closing(join()) as member:
            held = acquired(first_of(member))
            offsets = [offset for first, last, _ in held for offset in range(first, last + 1)]
            assert offsets == [4, 5, *range(8, 20)]
            # Kafka gave everything back when the connection was closed, and counted it.
            assert {count for _, _, count in held} == {2}
            assert member.acknowledge(8, 17, [ACCEPT]) is ErrorCode.NONE
            member.leave()
        assert ottla.stop() == 0, ottla.log

        kafka.start()
        with contextlib.closing(join()) as member:
            held = acquired(first_of(member))
            offsets = [offset for first, last, _ in held for offset in range(first, last + 1)]
            assert offsets == [4, 5, 18, 19]
            assert {count for _, _, count in held} == {3}
    finally:
        ottla.kill()


def first_of(member: ShareMember) -> Any:
    """The first records that a member gets: a share partition that is being loaded has none yet."""
    while True:
        part = member.fetch(max_wait_ms=2000)
        if part is not None and part.acquired_records:
            return part
