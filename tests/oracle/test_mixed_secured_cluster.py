"""Apache Kafka and Ottla in one cluster: mutual TLS to the controllers, SCRAM over TLS between brokers, ACLs.

Either system has the controller. Records are replicated both ways, and a client without rights is refused by both.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from oracle.kafka_tools import needs_java
from ottla.testing.apache import CLUSTER_ID, ApacheKafka
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = {"broker": "between-us-8812", "mallory": "no-rights-1177"}
OTTLA, APACHE = 1, 2
CONFIG = {"min.insync.replicas": "2"}
_PATIENCE_S = 90.0


class MixedCluster:
    """Node 1 is ours, node 2 Apache Kafka's; `controller` is the one that is a controller too."""

    def __init__(self, folder: Path, controller: int) -> None:
        self.folder = folder
        self.controller = controller
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        for node_id in (OTTLA, APACHE):
            write_pem(self.authority.issue(f"node{node_id}"), folder / f"node{node_id}.pem")
        self.ports = dict(zip((OTTLA, APACHE), free_ports(2), strict=True))
        self.controller_port = free_ports(1)[0]
        users = [word for name in USERS for word in ("--add-scram", self.scram(name))]
        file = folder / "node1.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.settings(OTTLA).items()))
        command = [sys.executable, "-m", "ottla", "storage", "format", "-c", str(file), "-t", CLUSTER_ID]
        subprocess.run([*command, *users], check=True, capture_output=True)
        self.ottla = BrokerProcess(folder / "data1", config=file, arguments=["--log-level", "info"])
        self.apache = ApacheKafka(folder / "apache")
        self.apache.settings = self.settings(APACHE)
        self.apache.port = self.ports[APACHE]
        self.apache.format(*users)

    @staticmethod
    def scram(name: str) -> str:
        return f"SCRAM-SHA-512=[name={name},password={USERS[name]}]"

    def settings(self, node_id: int) -> dict[str, object]:
        is_controller = node_id == self.controller
        listeners = f"CLIENTS://127.0.0.1:{self.ports[node_id]}"
        if is_controller:
            listeners += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        made: dict[str, object] = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": node_id,
            "controller.quorum.voters": f"{self.controller}@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                f'{SCRAM} required username="broker" password="{USERS["broker"]}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / f"node{node_id}.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trust,
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:CN=node1;User:CN=node2;User:broker",
            "log.dirs": self.folder / f"data{node_id}",
            "offsets.topic.replication.factor": 2,
            "offsets.topic.num.partitions": 2,
        }
        if node_id == OTTLA:
            made["ottla.node.identity"] = "required"
            made["ottla.node.principals"] = ";".join(
                f"{each}={who}" for each in (OTTLA, APACHE) for who in (f"User:CN=node{each}", "User:broker")
            )
        return made

    def start(self) -> None:
        self.ottla.launch()
        self.apache.launch()
        self.ottla.wait_ready(120)
        self.apache.wait(120)

    def client(self, node_id: int, user: str = "broker") -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[node_id]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }

    def kill(self) -> None:
        self.ottla.kill()
        self.apache.kill()


@pytest.fixture(scope="module", params=[OTTLA, APACHE], ids=["Ottla controls", "Apache Kafka controls"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path_factory.mktemp("mixed"), request.param)
    try:
        made.start()
        yield made
        log = made.ottla.log
        assert "Traceback" not in log, log
        assert not any(password in log for password in USERS.values())
    finally:
        made.kill()


def until(reached: Any) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline


def test_records_are_replicated_both_ways(cluster: MixedCluster) -> None:
    admin = AdminClient(cluster.client(OTTLA))
    until(lambda: len(admin.list_topics(timeout=30).brokers) == 2)
    # One partition is led by each of them.
    topic = NewTopic(
        "both", num_partitions=2, replica_assignment=[[OTTLA, APACHE], [APACHE, OTTLA]], config=CONFIG
    )
    admin.create_topics([topic])["both"].result(60)
    until(lambda: _in_sync(admin))
    producer = Producer(cluster.client(APACHE) | {"acks": "all"})
    errors: list[Any] = []
    for number in range(200):
        producer.produce(
            "both", b"%d" % number, partition=number % 2, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(60) == 0
    assert errors == [None] * 200
    consumer = Consumer(cluster.client(OTTLA) | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["both"])
    values: set[bytes] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while len(values) < 200:
        assert time.monotonic() < deadline
        values |= {message.value() for message in consumer.consume(100, 1.0) if message.error() is None}
    consumer.close()


def _in_sync(admin: AdminClient) -> bool:
    found = admin.list_topics("both", timeout=30).topics["both"]
    return len(found.partitions) == 2 and all(len(each.isrs) == 2 for each in found.partitions.values())


@pytest.mark.parametrize("node_id", [OTTLA, APACHE], ids=["Ottla", "Apache Kafka"])
def test_a_user_without_rights_is_refused_by_both(cluster: MixedCluster, node_id: int) -> None:
    admin = AdminClient(cluster.client(node_id, "mallory"))
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("forbidden", 1, 1)])["forbidden"].result(60)
    assert refused.value.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )
