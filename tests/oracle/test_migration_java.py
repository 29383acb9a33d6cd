"""Moving in without stopping: three nodes of Apache Kafka are replaced by Ottla one by one, and back, under load.

`ottla migrate` names each node and waits for it, as docs/how-to/migrate.md has it. A consumer group, transactions and a
queue go on meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from oracle import migration_load as load
from oracle.kafka_tools import needs_java
from oracle.migration_load import ProducerBatch
from ottla.cli.main import main
from ottla.testing.apache import ApacheKafka
from ottla.testing.apache_cluster import ApacheCluster
from ottla.testing.process import BrokerProcess

pytestmark = [
    needs_java,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no share consumer"
    ),
]

SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    # A node that comes back waits until the session of the one before has ended.
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 1000,
}
_PATIENCE_S = 240


class Machines:
    """Three machines with one properties file and one directory each, on which either system runs."""

    def __init__(self, folder: Path) -> None:
        self.cluster = ApacheCluster(folder, 3, SETTINGS)
        self.apache: dict[int, ApacheKafka] = self.cluster.nodes
        self.ottla = {
            node_id: BrokerProcess(node.data, config=node.properties) for node_id, node in self.apache.items()
        }
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda node: node.format(), self.apache.values()))

    def to_ottla(self, node_id: int) -> None:
        self.apache[node_id].stop()
        self.ottla[node_id].start(_PATIENCE_S)

    def to_apache(self, node_id: int) -> None:
        assert self.ottla[node_id].stop() == 0, self.ottla[node_id].log
        self.apache[node_id].start(_PATIENCE_S)

    def kill(self) -> None:
        self.cluster.kill()
        for process in self.ottla.values():
            process.kill()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        made.cluster.start()
        yield made
        for process in made.ottla.values():
            assert "Traceback" not in process.log, process.log
    finally:
        made.kill()


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = (load.ORDERS, load.LEFT, load.RIGHT, load.JOBS)
    for future in admin.create_topics([NewTopic(name, load.PARTITIONS, 3) for name in names]).values():
        future.result(60)
    # What a member held when its broker stopped comes again when its lock has ended.
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "15000"}
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    group = ConfigResource(ResourceType.GROUP, load.QUEUE, incremental_configs=changes)
    admin.incremental_alter_configs([group])[group].result(60)


def plan(bootstrap: str) -> dict[int, str]:
    """What `ottla migrate plan` says that each node runs."""
    done = CliRunner().invoke(main, ["migrate", "plan", "--json", "--bootstrap-server", bootstrap])
    assert done.exit_code == 0, done.output
    return {node["id"]: node["system"] for node in json.loads(done.stdout)["nodes"]}


class Step:
    """`ottla migrate next` beside the one who types what it says."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = [sys.executable, "-m", "ottla", "migrate", "next", "--json", *options]
        self._process = subprocess.Popen(
            [*command, "--bootstrap-server", bootstrap, "--timeout", str(_PATIENCE_S)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.said = json.loads(self._process.stdout.readline())

    def finished(self) -> int:
        """The exit code: 0 when the node is replaced and everything is in sync."""
        with self._process:
            return self._process.wait(_PATIENCE_S)


def once(kept: dict[int, set[str]], promised: list[int]) -> None:
    """Everything that was promised is there, once, and nothing else."""
    assert kept.keys() == set(promised)
    assert {number: places for number, places in kept.items() if len(places) > 1} == {}


def once_per_epoch(kept: dict[int, set[str]], promised: list[int], batches: dict[str, ProducerBatch]) -> None:
    """As `once`, but the producer may have sent a record again in another epoch: then no broker can notice it."""
    assert kept.keys() == set(promised)
    for number, places in kept.items():
        epochs = [batches[place].epoch for place in places]
        assert len(set(epochs)) == len(places), f"{number} is at {sorted(places)} with epochs {epochs}"


def test_a_cluster_moves_in_and_out_under_load(machines: Machines) -> None:
    bootstrap = machines.cluster.bootstrap
    make_topics(bootstrap)
    writer, transactor = load.Writer(bootstrap), load.Transactor(bootstrap)
    reader, member = load.Reader(bootstrap), load.QueueMember(bootstrap)
    workers = (writer, transactor, reader, member)
    with load.running(*workers):
        for worker in workers:
            worker.wait_for_more(20)
        for node in machines.apache.values():
            checked = CliRunner().invoke(main, ["migrate", "check", str(node.properties)])
            assert checked.exit_code == 0, checked.output
        assert set(plan(bootstrap).values()) == {"Apache Kafka"}
        for options, replace, target in (
            ([], machines.to_ottla, "Ottla"),
            (["--back"], machines.to_apache, "Apache Kafka"),
        ):
            replaced: list[int] = []
            for _ in machines.apache:
                step = Step(bootstrap, *options)
                assert step.said["target"] == target
                replace(step.said["node"])
                replaced.append(step.said["node"])
                assert step.finished() == 0
                for worker in workers:
                    worker.wait_for_more(10)
            assert sorted(replaced) == [1, 2, 3]
            assert set(plan(bootstrap).values()) == {target}

    reader.drain(set(writer.acknowledged[load.ORDERS]))
    member.drain(set(writer.acknowledged[load.JOBS]))
    for topic in (load.ORDERS, load.JOBS):
        batches = load.producer_batches(machines.apache[1].data, topic)
        once_per_epoch(load.read_committed(bootstrap, topic), writer.acknowledged[topic], batches)
    for topic in (load.LEFT, load.RIGHT):
        once(load.read_committed(bootstrap, topic), transactor.committed)
    reader.close()
    member.close()
    judge = Consumer({"bootstrap.servers": bootstrap, "group.id": load.GROUP})
    places = [TopicPartition(load.ORDERS, partition) for partition in range(load.PARTITIONS)]
    assert {each.partition: each.offset for each in judge.committed(places, 60)} == reader.committed
    judge.close()
