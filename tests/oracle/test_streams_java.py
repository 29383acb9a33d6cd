"""Java's Kafka Streams 4.3.1 on Ottla: its WordCount demo under both group protocols, exactly once, and its tool."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oracle.kafka_tools import dump_log, needs_java, run_tool
from ottla.testing.apache import LEAN_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath
from ottla.testing.process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

INPUT, OUTPUT, GROUP = "streams-plaintext-input", "streams-wordcount-output", "streams-wordcount"
PATIENCE_S = 120.0
Demo = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def cluster(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(INPUT, 3, 1), NewTopic(OUTPUT, 3, 1)]).values():
        created.result()
    return broker


@pytest.fixture
def demo(tmp_path: Path, cluster: BrokerProcess) -> Iterator[Demo]:
    """Starts an instance of the demo, as a program of its own with its own state directory."""
    started: list[subprocess.Popen[bytes]] = []

    def start(protocol: str, **settings: object) -> subprocess.Popen[bytes]:
        name = f"demo-{len(started)}"
        properties = tmp_path / f"{name}.properties"
        given = {
            "bootstrap.servers": cluster.bootstrap,
            "group.protocol": protocol,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 100,
            "state.dir": tmp_path / name,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        jars = classpath(f"org.apache.kafka:kafka-streams-examples:{VERSION}")
        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        with (tmp_path / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                ["java", *LEAN_JVM_FLAGS, "-cp", jars, main, str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def say(broker: BrokerProcess, *lines: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for number, line in enumerate(lines):
        producer.produce(INPUT, line.encode(), partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0


class Counts:
    """The newest count of each word, read as a careful reader does."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "no group",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        # Without a group: nothing but the reader's own position says what comes next, whatever the broker goes through.
        self._consumer.assign([TopicPartition(OUTPUT, number, 0) for number in range(3)])
        self.words: dict[str, int] = {}

    def wait_for(self, **wanted: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while {word: self.words.get(word) for word in wanted} != wanted:
            assert time.monotonic() < deadline, f"{self.words} instead of {wanted}"
            message = self._consumer.poll(0.5)
            if message is None or message.error():
                continue
            word, count = message.key().decode(), int.from_bytes(message.value(), "big")
            assert count == self.words.get(word, 0) + 1, f"{word} was not counted exactly once"
            self.words[word] = count


def tool(broker: BrokerProcess, *options: str) -> str:
    main = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    return run_tool(main, "--bootstrap-server", broker.bootstrap, *options)


def wait_for_state(broker: BrokerProcess, *words: str) -> str:
    """Until the tool's line about the group has all of these words."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        said = tool(broker, "--describe", "--group", GROUP, "--state", "--verbose")
        line = next((line for line in said.splitlines() if line.startswith(GROUP)), "")
        if all(word in line.split() for word in words):
            return line
        assert time.monotonic() < deadline, said


def test_word_count_with_classic_groups(cluster: BrokerProcess, demo: Demo) -> None:
    running = demo("classic")
    counts = Counts(cluster)
    say(cluster, "all streams lead to kafka", "hello kafka streams", "join kafka summit")
    counts.wait_for(kafka=3, streams=2, summit=1)
    stop(running)


def test_word_count_with_streams_groups_and_the_tool_for_them(cluster: BrokerProcess, demo: Demo) -> None:
    running = demo("streams")
    counts = Counts(cluster)
    say(cluster, "all streams lead to kafka", "hello kafka streams", "join kafka summit")
    counts.wait_for(kafka=3, streams=2, summit=1)
    wait_for_state(cluster, "Stable")
    assert GROUP in tool(cluster, "--list").splitlines()
    assert f"{GROUP} Stable".split() in [
        line.split() for line in tool(cluster, "--list", "--state").splitlines()
    ]
    members = tool(cluster, "--describe", "--group", GROUP, "--members", "--verbose")
    assert "0:[0,1,2]" in members and "1:[0,1,2]" in members, members
    offsets = tool(cluster, "--describe", "--group", GROUP, "--offsets").split()
    assert f"{GROUP}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition" in offsets
    assert INPUT in offsets
    internal = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60).topics
    changelog = internal[f"{GROUP}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"]
    assert len(changelog.partitions) == 3
    stop(running)
    wait_for_state(cluster, "Empty")
    reset = tool(
        cluster, "--reset-offsets", "--group", GROUP, "--to-earliest", "--input-topic", INPUT, "--execute"
    )
    assert sorted(line.split() for line in reset.splitlines() if INPUT in line) == [
        [GROUP, INPUT, str(partition), "0"] for partition in range(3)
    ]
    assert "Successful" in tool(cluster, "--delete-offsets", "--group", GROUP, "--input-topic", f"{INPUT}:1")
    assert "successful" in tool(cluster, "--delete", "--group", GROUP)
    assert GROUP not in tool(cluster, "--list").splitlines()


def test_tasks_move_between_instances_and_survive_the_broker(cluster: BrokerProcess, demo: Demo) -> None:
    first = demo("streams", num_stream_threads=2)
    counts = Counts(cluster)
    say(cluster, "one", "one two", "one two three")
    counts.wait_for(one=3, two=2, three=1)
    second = demo("streams")
    wait_for_state(cluster, "Stable", "3")
    say(cluster, "one", "one two", "one two three")
    counts.wait_for(one=6, two=4, three=2)
    cluster.kill()
    cluster.start()
    say(cluster, "one", "one two", "one two three")
    counts.wait_for(one=9, two=6, three=3)
    stop(first)
    say(cluster, "one", "one two", "one two three")
    counts.wait_for(one=12, two=8, three=4)
    wait_for_state(cluster, "Stable", "1")
    stop(second)
    assert cluster.stop() == 0
    written = dump_log(*sorted(cluster.data.glob("**/__consumer_offsets-*/*.log")), offsets=True)
    assert '"type":"19"' in written and "processId" in written, "Kafka reads the group's records"
