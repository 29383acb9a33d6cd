"""Kafka's metadata-quorum tool on a dynamic quorum of real processes, and its DumpLogSegments on the log it leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.kafka_tools import dump_log, needs_java, run_tool
from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.settings import node_config
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import OsFs
from ottla.testing.apache import free_port
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

CLUSTER_ID = "dynamic-quorum-of-test"


class DynamicQuorum:
    """Three nodes; the first is the only voter, the others are still to come in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.brokers = {i: free_port() for i in (1, 2, 3)}
        self.controllers = {i: free_port() for i in (1, 2, 3)}
        self.processes: dict[int, BrokerProcess] = {}
        for i in self.brokers:
            self._format(i)
            self.processes[i] = BrokerProcess(self.data(i), config=self.file(i))
            self.processes[i].launch()
        for process in self.processes.values():
            process.wait_ready(120)

    def file(self, i: int) -> Path:
        return self.directory / f"node-{i}.properties"

    def data(self, i: int) -> Path:
        return self.directory / f"node-{i}"

    def directory_id(self, i: int) -> str:
        properties = read_meta_properties(OsFs(), str(self.data(i)))
        assert properties is not None
        return properties["directory.id"]

    def _format(self, i: int) -> None:
        servers = ",".join(f"127.0.0.1:{port}" for port in self.controllers.values())
        lines = {
            "process.roles": "broker,controller",
            "node.id": i,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.brokers[i]},CONTROLLER://127.0.0.1:{self.controllers[i]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": self.data(i),
        }
        self.file(i).write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        request = FormatRequest(
            node_config(str(self.file(i))), CLUSTER_ID, standalone=i == 1, no_initial_controllers=i != 1
        )
        format_node(request, lambda line: None)

    def tool(self, *words: object, by: str = "--bootstrap-server", node: int = 2) -> str:
        ports = self.brokers if by == "--bootstrap-server" else self.controllers
        main = "org.apache.kafka.tools.MetadataQuorumCommand"
        return run_tool(main, by, f"127.0.0.1:{ports[node]}", *words)

    def add(self, i: int, **asked: object) -> str:
        return self.tool("--command-config", self.file(i), "add-controller", **asked)

    def wait_until_all_have_all(self) -> None:
        """Until the leader says of no node that it lacks a part of the log."""
        deadline = time.monotonic() + 60
        while True:
            said = self.tool("describe", "--replication")
            rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
            if {row[0] for row in rows} == {"1", "2", "3"} and all(row[3] == "0" for row in rows):
                return
            assert time.monotonic() < deadline, said

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[DynamicQuorum]:
    quorum = DynamicQuorum(tmp_path)
    yield quorum
    quorum.kill_all()


def test_controllers_are_described_added_and_removed(quorum: DynamicQuorum) -> None:
    status = quorum.tool("describe", "--status", by="--bootstrap-controller")
    assert f"ClusterId:              {CLUSTER_ID}" in status
    assert "LeaderId:               1" in status
    assert f'CurrentVoters:          [{{"id": 1, "directoryId": "{quorum.directory_id(1)}"' in status

    added = quorum.add(2, by="--bootstrap-controller", node=1)
    assert f"Added controller 2 with directory id {quorum.directory_id(2)}" in added
    assert "Added controller 3" in quorum.add(3)
    replication = quorum.tool("describe", "--replication")
    assert sorted(line.split()[-1] for line in replication.splitlines() if line[:1].isdigit()) == [
        "Follower",
        "Follower",
        "Leader",
    ]

    quorum.processes[1].kill()
    status = quorum.tool("describe", "--status", node=3)
    assert "LeaderId:               1" not in status and "LeaderId:" in status
    quorum.processes[1].start()
    removed = quorum.tool(
        "remove-controller", "--controller-id", 1, "--controller-directory-id", quorum.directory_id(1)
    )
    assert "Removed  KRaft controller 1" in removed
    status = quorum.tool("describe", "--status")
    voters = next(line for line in status.splitlines() if line.startswith("CurrentVoters"))
    assert '"id": 1' not in voters and '"id": 2' in voters and '"id": 3' in voters

    quorum.wait_until_all_have_all()
    quorum.kill_all()
    for i in quorum.processes:
        segment = next((quorum.data(i) / "__cluster_metadata-0").glob("*.log"))
        said = dump_log(segment, cluster_metadata=True)
        assert said.count("KRaftVoters") >= 4, "the first voters, two that came, one that went"
        assert said.count("LeaderChange") >= 2
