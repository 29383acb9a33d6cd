"""`make test-mirror-clusters`: sources too old for a move node by node, Apache Kafka 3.3 and 2.8 with ZooKeeper.

They move by a copy: verified, rehearsed, failed over, with transactions, a group in the middle, and messages of the
formats before 2.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    keys,
    make_topic,
    next_record,
    produce,
    records,
    transactions,
    write_file,
)
from ottla.cli.main import main
from ottla.pipeline.writer import Place
from ottla.records.old_formats import is_old
from ottla.testing.maven import classpath
from ottla.testing.ports import free_ports
from ottla.testing.process import end_process

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif("OTTLA_MIRROR_CLUSTERS" not in os.environ, reason="long: make test-mirror-clusters"),
]

_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ONE = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
_PATIENCE_S = 120


class Programs:
    """Programs of one release, until the test ends."""

    def __init__(self, version: str, folder: Path) -> None:
        self._path = classpath(f"org.apache.kafka:kafka_2.13:{version}")
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def file(self, name: str, settings: Mapping[str, object]) -> Path:
        path = self._folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def run(self, *words: object) -> None:
        subprocess.run(
            ["java", *_FLAGS, "-cp", self._path, *map(str, words)], check=True, timeout=_PATIENCE_S
        )

    def start(self, port: int, *words: object) -> None:
        """Starts a program and waits until its port opens."""
        with (self._folder / f"{port}.log").open("wb") as log:
            command = ["java", *_FLAGS, "-cp", self._path, *map(str, words)]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._running.append(process)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            assert process.poll() is None and time.monotonic() < deadline, (
                self._folder / f"{port}.log"
            ).read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return

    def end(self) -> None:
        for process in reversed(self._running):
            end_process(process)


def start_with_quorum(programs: Programs, folder: Path) -> str:
    port, controller = free_ports(2)
    own = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
    }
    file = programs.file("server.properties", own | _ONE)
    programs.run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file)
    programs.start(port, "kafka.Kafka", file)
    return f"127.0.0.1:{port}"


def start_with_zookeeper(programs: Programs, folder: Path) -> str:
    port, keeper = free_ports(2)
    kept = {"dataDir": folder / "zookeeper", "clientPort": keeper, "admin.enableServer": "false"}
    programs.start(
        keeper,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        programs.file("zookeeper.properties", kept),
    )
    own = {
        "broker.id": 1,
        "zookeeper.connect": f"127.0.0.1:{keeper}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": folder / "data",
    }
    programs.start(port, "kafka.Kafka", programs.file("server.properties", own | _ONE))
    return f"127.0.0.1:{port}"


@pytest.fixture
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    found = Programs(request.param, tmp_path)
    try:
        yield found
    finally:
        found.end()


def old_formats(source: str) -> dict[str, int]:
    """Topics whose messages the broker keeps as clients before 0.11 and before 0.10 wrote them; their lengths."""
    found = {}
    for version in ("0.10.2", "0.9.0"):
        name = f"of-{version}"
        make_topic(source, name, message_format_version=version)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4")):
            producer = Producer({"bootstrap.servers": source, "compression.type": codec, "linger.ms": 5})
            for each in range(30):
                producer.produce(name, b"key" if each % 3 else None, b"%d" % (100 * number + each) * 9)
            assert producer.flush(60) == 0
        found[name] = 120
    return found


def moved(source: str, target: str, folder: Path) -> None:
    """The copy with all that surrounds it, as a user types it."""
    given = keys(source, target, replication__policy__class="IdentityReplicationPolicy")
    file = str(write_file(folder / "mm2.properties", given))
    for words in (["run", "--once"], ["verify", "--full"], ["drill"], ["failover", "A", "B"]):
        done = CliRunner().invoke(main, ["mirror", words[0], file, *words[1:]])
        assert done.exit_code == 0, done.output


def fill(source: str) -> dict[Place, int]:
    """Records of all kinds, and a group in the middle of them."""
    make_topic(source, "orders", 2, retention_ms="86400000")
    produce(source, "orders", 300, codec="lz4")
    transactions(source, "orders", 6, size=10)
    produce(source, "orders", 100, codec="zstd", start=1000)
    held = records(source, "orders")
    places = {Place("orders", number): part[len(part) // 2][0] for number, part in held.items()}
    commit(source, "billing", places)
    return places


def assert_moved(source: str, target: str, places: Mapping[Place, int]) -> None:
    assert assert_same_records(source, "orders", target, "orders") == 440
    held, copies, found = records(source, "orders"), records(target, "orders"), committed(target, "billing")
    for place, offset in places.items():
        mine = next_record(held[place.partition], offset)
        assert next_record(copies[place.partition], found[place]) == mine


@pytest.mark.parametrize("programs", ["3.3.2"], indirect=True)
def test_a_cluster_with_an_older_quorum_moves_by_a_copy(programs, start_ottla_broker, tmp_path):
    source, target = start_with_quorum(programs, tmp_path), start_ottla_broker("target").bootstrap
    places = fill(source)
    moved(source, target, tmp_path)
    assert_moved(source, target, places)


@pytest.mark.parametrize("programs", ["2.8.2"], indirect=True)
def test_a_cluster_with_zookeeper_and_old_messages_moves_by_a_copy(programs, start_ottla_broker, tmp_path):
    source, target = start_with_zookeeper(programs, tmp_path), start_ottla_broker("target").bootstrap
    places = fill(source)
    topics = old_formats(source)
    for topic, count in topics.items():
        segment = (tmp_path / "data" / f"{topic}-0" / f"{0:020}.log").read_bytes()
        assert is_old(segment), "the broker kept the format"
        commit(source, "billing", {Place(topic, 0): count // 2})
    moved(source, target, tmp_path)
    assert_moved(source, target, places)
    for topic, count in topics.items():
        assert assert_same_records(source, topic, target, topic) == count
        assert committed(target, "billing")[Place(topic, 0)] == count // 2
