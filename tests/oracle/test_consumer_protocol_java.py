"""Java's consumer with `group.protocol=consumer`, and what the group tools show of it."""

from __future__ import annotations

import re
import subprocess

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from oracle.kafka_tools import needs_java, run_tool
from ottla.testing.apache import java_command
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"


def make(broker: BrokerProcess, topic: str, partitions: int, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, f"{topic} {number}")
    assert producer.flush(60) == 0


def consume(broker: BrokerProcess, group: str, count: int, *arguments: object) -> list[str]:
    said = run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--group", group, "--from-beginning"),
        *("--command-property", "group.protocol=consumer"),
        *("--max-messages", count, "--timeout-ms", 60000, *arguments),
    )
    wait_until_empty(broker, group)
    return [line for line in said.splitlines() if line.startswith(group)]


def wait_until_empty(broker: BrokerProcess, group: str) -> None:
    """A consumer says that it leaves, and does not wait for the answer."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while admin.describe_consumer_groups([group])[group].result(60).members:
        pass


def groups(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap, *arguments
    )


def test_a_regular_expression_is_matched_by_the_broker(broker: BrokerProcess, topic: str) -> None:
    make(broker, f"{topic}.one", 2, 30)
    make(broker, f"{topic}.two", 1, 20)
    make(broker, f"other.{topic}.one", 1, 10)
    got = consume(broker, topic, 50, "--include", rf"{topic}\.(one|two)")
    expected = [f"{topic}.one {n}" for n in range(30)] + [f"{topic}.two {n}" for n in range(20)]
    assert sorted(got) == sorted(expected)


def test_the_tools_show_a_group_and_its_lag(broker: BrokerProcess, topic: str) -> None:
    make(broker, topic, 3, 60)
    assert len(consume(broker, topic, 40, "--topic", topic)) == 40
    listed = groups(broker, "--list", "--type", "consumer")
    assert re.search(rf"^{topic}\s+Consumer\s*$", listed, re.MULTILINE), listed
    state = groups(broker, "--describe", "--group", topic, "--state")
    assert re.search(rf"{topic}\s+\S+\s+\(1\)\s+uniform\s+Empty\s+0", state), state
    offsets = groups(broker, "--describe", "--group", topic, "--offsets")
    rows = re.findall(rf"^{topic}\s+{topic}\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+)", offsets, re.MULTILINE)
    assert sum(int(end) for _, _, end, _ in rows) == 60, offsets
    assert sum(int(lag) for *_, lag in rows) == 20, offsets
    groups(broker, "--delete", "--group", topic)
    assert topic not in groups(broker, "--list").splitlines()


def test_two_verifiable_consumers_share_a_topic(broker: BrokerProcess, topic: str) -> None:
    make(broker, topic, 4, 0)
    command = java_command(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", topic),
        *("--group-protocol", "consumer", "--verbose"),
    )
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        shares: list[int] = []
        while shares != [2, 2]:
            described = admin.describe_consumer_groups([topic])[topic].result(60)
            shares = [len(member.assignment.topic_partitions) for member in described.members]
        members = groups(broker, "--describe", "--group", topic, "--members", "--verbose")
        assert len(re.findall(rf"{topic}:0,1|{topic}:\d,\d", members)) >= 2, members
    finally:
        for process in running:
            process.terminate()
            process.communicate(timeout=60)
    wait_until_empty(broker, topic)
    assert re.search(r"Empty\s+0", groups(broker, "--describe", "--group", topic, "--state"))
