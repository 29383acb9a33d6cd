"""One quorum of two of our controllers and one of Apache Kafka's: either side leads, the other follows."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

import pytest

from oracle.kafka_tools import dump_log, needs_java, run_tool
from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.settings import node_config
from ottla.testing.apache import CLUSTER_ID, ApacheKafka, free_port
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


class MixedQuorum:
    """Nodes 1 and 2 are ours, 3 is Apache Kafka's; each is broker and controller."""

    def __init__(self, directory: Path) -> None:
        controllers = {i: free_port() for i in (1, 2, 3)}
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in controllers.items())
        self.ours: dict[int, BrokerProcess] = {}
        self.ports: dict[int, int] = {}
        for i in (1, 2):
            self.ports[i] = free_port()
            lines = {
                "process.roles": "broker,controller",
                "node.id": i,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[i]},CONTROLLER://127.0.0.1:{controllers[i]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "log.dirs": directory / f"node-{i}",
            }
            file = directory / f"node-{i}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            format_node(FormatRequest(node_config(str(file)), CLUSTER_ID), lambda line: None)
            self.ours[i] = BrokerProcess(directory / f"node-{i}", config=file)
        theirs = directory / "apache"
        theirs.mkdir()
        self.theirs = ApacheKafka(theirs, {"controller.quorum.voters": voters, "node.id": 3})
        own = f"PLAINTEXT://127.0.0.1:{self.theirs.port},CONTROLLER://127.0.0.1:{controllers[3]}"
        self.theirs.settings["listeners"] = own
        self.ports[3] = self.theirs.port
        self.theirs.format()

    def start(self) -> None:
        for process in self.ours.values():
            process.launch()
        for process in self.ours.values():
            process.wait_ready(60)
        self.theirs.start()

    def run(self, tool: str, *words: object, node: int, check: bool = True) -> str:
        return run_tool(tool, "--bootstrap-server", f"127.0.0.1:{self.ports[node]}", *words, check=check)

    def leader(self, node: int) -> int:
        said = self.run(QUORUM, "describe", "--status", node=node)
        found = re.search(r"LeaderId:\s+(-?\d+)", said)
        assert found is not None, said
        return int(found[1])

    def leader_by_ours(self) -> int:
        """The same by one of ours, when there is a leader.

        Apache Kafka's broker may go on asking a controller that led before and is back: that one does not say that it
        is no controller, only that it is not the leader of the log.
        """
        kind = m.DescribeQuorumRequest
        partition = kind.PartitionData(partition_index=0)
        question = kind(topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[partition])])
        deadline = time.monotonic() + 60
        while True:
            for process in self.ours.values():
                if process.running:
                    with contextlib.suppress(OSError), RawClient(process.host, process.port) as client:
                        answer = client.ask(question, 2)
                        found = answer.topics[0].partitions[0] if not answer.error_code else None
                        if found is not None and not found.error_code:
                            return int(found.leader_id)
            assert time.monotonic() < deadline, "nobody leads"

    def wait_for_topic(self, topic: str, node: int) -> None:
        """Until a broker shows it with all its replicas in sync."""
        deadline = time.monotonic() + 60
        while True:
            # Brokers hear of a topic a moment after it was made; until then it is refused.
            said = self.run(TOPICS, "--describe", "--topic", topic, node=node, check=False)
            in_sync = re.findall(r"Isr: ([\d,]+)", said)
            if in_sync and all(len(isr.split(",")) == 3 for isr in in_sync):
                return
            assert time.monotonic() < deadline, said

    def kill(self) -> None:
        for process in self.ours.values():
            process.kill()
        if self.theirs.running:
            self.theirs.kill()


def test_either_leads_and_the_other_follows(tmp_path: Path) -> None:
    quorum = MixedQuorum(tmp_path)
    try:
        quorum.start()
        if (leader := quorum.leader(3)) == 3:
            quorum.theirs.kill()
            leader = quorum.leader(1)
            quorum.theirs.start()
        assert leader in quorum.ours, "one of ours leads, and Apache Kafka's node follows it"
        quorum.run(TOPICS, "--create", "--topic", "first", "--replication-factor", 3, node=3)
        quorum.wait_for_topic("first", 3)
        replication = quorum.run(QUORUM, "describe", "--replication", node=3)
        assert sorted(line.split()[0] for line in replication.splitlines() if line[:1].isdigit()) == list(
            "123"
        )

        # Who follows a leader is chance: until Apache Kafka's node leads, and ours follow it.
        deadline = time.monotonic() + 400
        while (leader := quorum.leader_by_ours()) != 3:
            assert time.monotonic() < deadline, leader
            quorum.ours[leader].kill()
            quorum.leader_by_ours()
            quorum.ours[leader].start()
        quorum.run(TOPICS, "--create", "--topic", "second", "--replication-factor", 3, node=1)
        quorum.wait_for_topic("second", 2)
    finally:
        quorum.kill()
    said = dump_log(tmp_path / "node-1" / "__cluster_metadata-0" / f"{0:020d}.log", cluster_metadata=True)
    assert '"name":"first"' in said and '"name":"second"' in said
