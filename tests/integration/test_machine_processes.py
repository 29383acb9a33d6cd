"""`ottla.processes=2`: one file, two brokers of one cluster, a shared port, and a rolling restart under load."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.ports import free_ports
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import MetadataRequest

pytestmark = pytest.mark.slow

STEP = 7


class Machine:
    """The supervisor's process."""

    def __init__(self, directory: Path) -> None:
        self.port, controller = ports_for_two()
        self.file = directory / "server.properties"
        self.file.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"log.dirs={directory}/data\nottla.processes=2\nottla.processes.port.step={STEP}\n"
            "offsets.topic.replication.factor=2\n"
        )
        ottla = [sys.executable, "-m", "ottla"]
        storage = ["storage", "format", "--config", str(self.file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
        subprocess.run([*ottla, *storage], check=True, capture_output=True)
        self.process = subprocess.Popen(
            [*ottla, "start", "--config", str(self.file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def error_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().strip()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=120)
        return self.process.returncode


def ports_for_two() -> tuple[int, int]:
    """A port with the two above it free, by steps, and one for the controller."""
    while True:
        port, controller = free_ports(2)
        wanted = [port, *(port + number * STEP for number in (1, 2))]
        with contextlib.ExitStack() as held:
            try:
                for each in wanted:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            if controller not in wanted:
                return port, controller


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    if made.process.poll() is None:
        made.stop()


def test_two_processes_of_one_file_are_two_brokers_that_share_a_port(
    machine: Machine, tmp_path: Path
) -> None:
    ready = machine.line()
    assert f"is ready on 127.0.0.1:{machine.port} (nodes 1, 1001, cluster" in ready
    shared = f"127.0.0.1:{machine.port}"
    own = {1: machine.port + STEP, 1001: machine.port + 2 * STEP}
    equal = 0
    while equal < 20:
        with RawClient("127.0.0.1", machine.port) as client:
            brokers = client.ask(MetadataRequest(topics=[]), 12).brokers
        found = {broker.node_id: broker.port for broker in brokers}
        assert found.items() <= own.items()
        # A process may not have read yet that the other one has registered.
        equal = equal + 1 if found == own else 0
    assert len({broker.rack for broker in brokers}) == 1
    assert (tmp_path / "data-1001" / "meta.properties").exists()

    admin = AdminClient({"bootstrap.servers": shared})
    for future in admin.create_topics([NewTopic("spread", 4, 1), NewTopic("kept", 2, 2)]).values():
        future.result()
    # A process may not have read yet what the other one has created.
    while not (spread := admin.list_topics("spread", timeout=30).topics["spread"].partitions):
        pass
    partitions = spread.values()
    assert {partition.leader for partition in partitions} == {1, 1001}

    assert "2 brokers on 1: 127.0.0.1 (1, 1001)" in said("doctor", shared)
    assert "2 brokers on 1 machine," in said("top", shared, "--iterations", "1", "--interval", "0.05")

    sent = produce_while_restarting(machine, shared)
    assert sorted(read_all(shared)) == sorted(sent)
    assert machine.stop() == 0


def said(tool: str, bootstrap: str, *words: str) -> str:
    command = [sys.executable, "-m", "ottla", tool, "--bootstrap-server", bootstrap, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def produce_while_restarting(machine: Machine, shared: str) -> list[bytes]:
    """What was acknowledged from before a rolling restart until after it."""
    producer = Producer({"bootstrap.servers": shared, "acks": "all", "enable.idempotence": True})
    acknowledged: list[bytes] = []
    done = threading.Event()

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        acknowledged.append(message.value())  # type: ignore[attr-defined]

    def produce() -> None:
        number = 0
        while not done.is_set():
            producer.produce("kept", f"record {number}".encode(), on_delivery=delivered)
            number += 1
            producer.poll(0)
            select.select([], [], [], 0.01)
        assert producer.flush(60) == 0

    load = threading.Thread(target=produce)
    load.start()
    try:
        os.kill(machine.process.pid, signal.SIGUSR1)
        seen = []
        while not seen or seen[-1] != "ottla: all nodes have restarted":
            seen.append(machine.error_line())
            assert seen[-1], "the supervisor has ended"
        restarted = [line for line in seen if "its replicas are in sync" in line]
        assert [line.split()[2] for line in restarted] == ["1", "1001"]
    finally:
        done.set()
        load.join()
    assert acknowledged
    return acknowledged


def read_all(shared: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": shared, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("kept", partition, 0) for partition in (0, 1)])
    values, ends = [], 0
    while ends < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return values
