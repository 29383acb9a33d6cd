"""Three nodes that let nobody in without credentials: mutual TLS between controllers, SCRAM between brokers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerFailed, BrokerProcess

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODES = (1, 2, 3)

pytestmark = pytest.mark.slow


class SecuredCluster:
    """Each node is broker and controller; its configuration is what a user of Kafka would write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        ports = free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports, strict=False))
        self.controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self.nodes = {node_id: self._node(node_id) for node_id in NODES}

    def _node(self, node_id: int) -> BrokerProcess:
        write_pem(self.authority.issue(f"node{node_id}"), self.folder / f"node{node_id}.pem")
        file = self.folder / f"node{node_id}.properties"
        file.write_text(self.properties(node_id))
        subprocess.run(
            [
                *(sys.executable, "-m", "ottla", "storage", "format", "-c", str(file)),
                *(
                    "-t",
                    "5L6g3nShT-eMCtK--X86sw",
                    "--add-scram",
                    "SCRAM-SHA-512=[name=broker,password=between-us]",
                ),
            ],
            check=True,
            capture_output=True,
        )
        return BrokerProcess(self.folder / f"data{node_id}", config=file, arguments=["--log-level", "info"])

    def properties(self, node_id: int) -> str:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.controllers.items())
        return f"""
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=CLIENTS://127.0.0.1:{self.ports[node_id]},CONTROLLER://127.0.0.1:{self.controllers[node_id]}
listener.security.protocol.map=CONTROLLER:SSL,CLIENTS:SASL_SSL
inter.broker.listener.name=CLIENTS
log.dirs={self.folder / f"data{node_id}"}
ssl.keystore.type=PEM
ssl.keystore.location={self.folder / f"node{node_id}.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={self.trust}
listener.name.controller.ssl.client.auth=required
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config={SCRAM} required username="broker" password="between-us";
connections.max.reauth.ms=5000
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
"""

    def start(self) -> None:
        for process in self.nodes.values():
            process.launch()
        for process in self.nodes.values():
            process.wait_ready()

    def logs(self) -> str:
        return "\n".join(process.log[-3000:] for process in self.nodes.values())

    def client(self) -> dict[str, str]:
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "broker",
            "sasl.password": "between-us",
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    made = SecuredCluster(tmp_path_factory.mktemp("secured"))
    try:
        made.start()
        yield made
        for process in made.nodes.values():
            assert "Traceback" not in process.log, process.log
            assert "between-us" not in process.log
    finally:
        for process in made.nodes.values():
            process.kill()


def test_records_are_replicated_and_survive_the_loss_of_a_node(cluster: SecuredCluster) -> None:
    """Sessions between brokers end every five seconds, so that the copies go on over renewed ones."""
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result(60)
    producer = Producer(cluster.client() | {"acks": "all", "linger.ms": 5})
    delivered: list[int] = []

    def send(count: int) -> None:
        for number in range(count):
            producer.produce(
                "t", b"%d" % number, on_delivery=lambda error, _: delivered.append(error is None)
            )
            producer.poll(0.05)
        assert producer.flush(60) == 0, cluster.logs()

    send(200)
    cluster.nodes[2].kill()
    send(100)
    cluster.nodes[2].start()
    send(20)
    assert sum(delivered) == 320
    assert not any(
        "cannot reach" in process.log and "UNAUTH" in process.log for process in cluster.nodes.values()
    )


def test_a_node_with_the_certificate_of_somebody_else_does_not_get_in(
    cluster: SecuredCluster, tmp_path: Path
) -> None:
    stranger = CertificateAuthority.create("stranger")
    write_pem(stranger.issue("node9"), tmp_path / "node9.pem")
    text = cluster.properties(1).replace(str(cluster.folder / "node1.pem"), str(tmp_path / "node9.pem"))
    text = text.replace("process.roles=broker,controller", "process.roles=broker").replace(
        "node.id=1\n", "node.id=9\n"
    )
    text = text.replace(f",CONTROLLER://127.0.0.1:{cluster.controllers[1]}", "")
    text = text.replace(f"127.0.0.1:{cluster.ports[1]}", f"127.0.0.1:{free_ports(1)[0]}")
    text = text.replace(str(cluster.folder / "data1"), str(tmp_path / "data"))
    file = tmp_path / "node9.properties"
    file.write_text(text)
    command = [
        sys.executable,
        "-m",
        "ottla",
        "storage",
        "format",
        "-c",
        str(file),
        "-t",
        "5L6g3nShT-eMCtK--X86sw",
    ]
    subprocess.run(command, check=True, capture_output=True)
    process = BrokerProcess(tmp_path / "data", config=file)
    process.launch()
    try:
        deadline = time.monotonic() + 60
        while "certificate was not accepted" not in "".join(node.log for node in cluster.nodes.values()):
            assert time.monotonic() < deadline, cluster.logs()
        with pytest.raises(BrokerFailed):
            process.wait_ready(1.0)
    finally:
        process.kill()
