"""Apache Kafka's own consumers and its consumer-groups tool, on classic groups."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from integration.group_members import BROKER_SETTINGS, TIMINGS, make_topic
from oracle.kafka_tools import dump_log, needs_java, run_tool
from ottla.coordinator.runtime import partition_for
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return BROKER_SETTINGS


def groups(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap, *arguments
    )


def rows(said: str) -> list[list[str]]:
    """The lines of a table that the tool printed, without its heading."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    heading = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
    return lines[heading + 1 :]


def read(bootstrap: str, group: str, topic: str, count: int, values: list[bytes] | None = None) -> Consumer:
    """A member that has read and committed so much, and stays."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "the-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **TIMINGS,
            # A busy machine may stand still for longer than the shortest session: nobody is to be expelled here.
            "session.timeout.ms": 20_000,
        }
    )
    consumer.subscribe([topic])
    while count:
        message = consumer.poll(60)
        assert message is not None, f"{count} are missing"
        assert message.error() is None, message.error()
        if values is not None:
            values.append(message.value())
        count -= 1
    consumer.commit(asynchronous=False)
    return consumer


def test_the_tool_lists_describes_resets_and_deletes(broker: BrokerProcess, topic: str) -> None:
    group = f"g-{topic}"
    make_topic(broker.bootstrap, topic, 2, [b"%d" % i for i in range(20)])
    consumer = read(broker.bootstrap, group, topic, 20)

    assert group in groups(broker, "--list").split()
    stable = groups(broker, "--list", "--state", "stable", "--type", "classic")
    assert [row[:3] for row in rows(stable) if row[0] == group] == [[group, "Classic", "Stable"]]

    described = rows(groups(broker, "--describe", "--group", group))
    assert [row[:6] for row in described] == [[group, topic, str(p), "10", "10", "0"] for p in (0, 1)]
    assert {row[7] for row in described} == {"/127.0.0.1"}
    (member,) = rows(groups(broker, "--describe", "--group", group, "--members", "--verbose"))
    assert member[0] == group and "the-client" in member and f"{topic}:0,1" in " ".join(member)
    (state,) = rows(groups(broker, "--describe", "--group", group, "--state"))
    assert "Stable" in state and "range" in state

    delete = groups(broker, "--delete", "--group", group)
    assert "not empty" in delete or "NonEmptyGroup" in delete
    offsets = groups(broker, "--delete-offsets", "--group", group, "--topic", topic)
    assert "subscribed" in offsets.lower()
    consumer.close()

    empty = groups(broker, "--describe", "--group", group)
    assert "has no active members" in empty
    reset = groups(
        broker, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 4, "--execute"
    )
    assert sorted(row[:4] for row in rows(reset)) == [[group, topic, str(p), "4"] for p in (0, 1)]
    again = rows(groups(broker, "--describe", "--group", group, "--offsets"))
    assert [row[3:6] for row in again] == [["4", "10", "6"]] * 2

    assert "Successful" in groups(broker, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    left = rows(groups(broker, "--describe", "--group", group))
    assert [row[2:4] for row in left] == [["0", "4"]]
    assert "successful" in groups(broker, "--delete", "--group", group)
    assert group not in groups(broker, "--list").split()


def test_the_console_consumer_goes_on_where_its_group_was(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])

    def consume(count: int) -> list[str]:
        said = run_tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", f"g-{topic}"),
            *("--from-beginning", "--max-messages", count, "--timeout-ms", 60000),
        )
        return [line for line in said.splitlines() if line.isdigit()]

    assert consume(4) == ["0", "1", "2", "3"]
    assert consume(6) == ["4", "5", "6", "7", "8", "9"]


def test_the_verifiable_consumer_verifies(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3, [b"%d" % i for i in range(300)])
    said = run_tool(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", f"g-{topic}"),
        *("--max-messages", 300, "--reset-policy", "earliest", "--session-timeout", 45000),
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names[0] == "startup_complete" and "shutdown_complete" in names
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 300
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits and all(event["success"] for event in commits)
    last = {each["partition"]: each["offset"] for event in commits for each in event["offsets"]}
    assert last == {0: 100, 1: 100, 2: 100}


def test_kafka_reads_what_the_coordinator_wrote(start_broker, topic: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    broker = start_broker(settings=BROKER_SETTINGS)
    make_topic(broker.bootstrap, topic, 1, [b"x"])
    read(broker.bootstrap, "g", topic, 1).close()
    broker.stop()
    directory = broker.data / f"__consumer_offsets-{partition_for('g', 50)}"
    said = dump_log(*directory.glob("*.log"), offsets=True)
    payloads = [line for line in said.splitlines() if "payload:" in line]
    commit = next(line for line in payloads if '"offset":1' in line)
    assert f'"topic":"{topic}"' in commit and '"group":"g"' in commit
    group = [line for line in payloads if '"protocolType":"consumer"' in line]
    assert '"protocol":"range"' in group[0] and '"assignment"' in group[0]
    assert '"members":[]' in group[-1]


def test_a_group_moves_with_its_directory_from_kafka_to_ottla_and_back(tmp_path: Path, topic: str) -> None:
    settings = {"group.min.session.timeout.ms": 500}
    kafka = ApacheKafka(tmp_path / "kafka", settings)
    kafka.format()
    kafka.start()
    ottla = BrokerProcess(kafka.data, listen=kafka.bootstrap, arguments=["--config", str(kafka.properties)])
    values: list[bytes] = []
    try:
        make_topic(kafka.bootstrap, topic, 1, [b"%d" % i for i in range(12)])
        read(kafka.bootstrap, "g", topic, 4, values).close()
        kafka.stop()
        ottla.start()
        read(ottla.bootstrap, "g", topic, 4, values).close()
        assert ottla.stop() == 0, ottla.log
        kafka.start()
        read(kafka.bootstrap, "g", topic, 4, values).close()
    finally:
        ottla.kill()
        kafka.kill()
    assert values == [b"%d" % i for i in range(12)]
    assert "Traceback" not in ottla.log
