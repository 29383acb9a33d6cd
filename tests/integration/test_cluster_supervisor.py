"""`ottla start --brokers 3`: one command, three processes, and what it does when one of them dies."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.testing.ports import free_ports
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import MetadataRequest

pytestmark = pytest.mark.slow


class Supervised:
    """The supervisor's process."""

    def __init__(self, data: Path, port: int, brokers: int = 3, *words: str) -> None:
        self.data = data
        self.port = port
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ottla", "start", "--brokers", str(brokers)),
                *("--data", str(data), "--listen", f"127.0.0.1:{port}"),
                *words,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, timeout_s: float = 120.0) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        assert readable, "it said nothing"
        return self.process.stdout.readline().strip()

    def pid(self, node_id: int) -> int | None:
        try:
            return int((self.data / f"node-{node_id}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def answers(self, number: int) -> bool:
        try:
            with RawClient("127.0.0.1", self.port + number) as client:
                return len(client.ask(MetadataRequest(topics=[]), 12).brokers) == 3
        except OSError:
            return False

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come to be"
            select.select([], [], [], 0.05)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def begin(brokers: int = 3, *words: str, port: int | None = None) -> Supervised:
        port = port or run_of_free_ports(2 * brokers)
        started.append(Supervised(tmp_path / "data", port, brokers, *words))
        return started[-1]

    yield begin
    for supervised in started:
        supervised.process.kill()
        supervised.process.communicate()


def run_of_free_ports(count: int) -> int:
    """A port that, with those after it, is free."""
    while True:
        ports = free_ports(count)
        if ports == list(range(ports[0], ports[0] + count)):
            return ports[0]


def test_a_cluster_from_one_command(start: Callable[..., Supervised]) -> None:
    cluster = start()
    line = cluster.line()
    addresses = ",".join(f"127.0.0.1:{cluster.port + n}" for n in range(3))
    assert re.fullmatch(rf"Ottla \S+ is ready on {addresses} \(data in .*, cluster \S{{22}}\)", line), line
    pids = {node_id: cluster.pid(node_id) for node_id in (1, 2, 3)}
    assert len(set(pids.values()) - {None}) == 3
    assert all((cluster.data / f"node-{node_id}.log").exists() for node_id in pids)
    producer = Producer({"bootstrap.servers": addresses, "acks": "all"})
    outcomes: list[object] = []
    producer.produce("made-of-three", b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(60)
    assert outcomes == [None]

    # What dies comes back.
    assert pids[2] is not None
    os.kill(pids[2], signal.SIGKILL)
    cluster.wait_for(lambda: cluster.pid(2) not in (None, pids[2]))
    cluster.wait_for(lambda: cluster.answers(1))

    code, errors = cluster.stop()
    assert code == 0, errors
    assert "node 2 ended (signal SIGKILL); starting it again at once" in errors
    assert cluster.pid(1) is None

    # It is the same cluster when it is started again.
    again = start(port=cluster.port)
    assert again.line() == line
    assert again.stop(signal.SIGINT)[0] == 0


def test_a_node_that_cannot_live_ends_the_cluster_with_a_clear_line(start: Callable[..., Supervised]) -> None:
    with socket.socket() as taken:
        port = run_of_free_ports(6)
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        cluster = start(port=port)
        _, errors = cluster.process.communicate(timeout=300)
    assert cluster.process.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert "node 2 failed 5 times in a row" in last
    assert f"cannot listen on 127.0.0.1:{port + 1}" in last


def test_nodes_do_not_outlive_their_supervisor(start: Callable[..., Supervised]) -> None:
    cluster = start(1)
    cluster.line()
    pid = cluster.pid(1)
    assert pid is not None
    cluster.process.kill()
    cluster.process.wait()
    cluster.wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_single_nodes_directory_is_left_alone(start: Callable[..., Supervised], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    cluster = start()
    _, errors = cluster.process.communicate(timeout=120)
    assert cluster.process.returncode == 1
    assert "holds the data of a single node" in errors
