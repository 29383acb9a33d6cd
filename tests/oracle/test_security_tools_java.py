"""Kafka's own kafka-acls and ClientCompatibilityTest: on Ottla they say what they say on Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import JavaTools, Said
from oracle.tools_systems import ADMIN, PASSWORD, ApachePair
from ottla.testing.apache import run_java
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

LINES = """
--add --allow-principal User:sec-alice --operation Read --topic sec-orders
--add --deny-principal User:sec-bob --deny-host 10.0.0.1 --operation Write --topic sec-orders
--add --allow-principal User:sec-alice --producer --idempotent --topic sec-pre --resource-pattern-type prefixed
--add --allow-principal User:sec-alice --operation Write --operation Describe --transactional-id sec-tx
--add --allow-principal User:sec-carol --allow-host 127.0.0.1 --consumer --topic sec-orders --group sec-group
--add --allow-principal User:* --operation Describe --topic sec-orders
--add --allow-principal User:sec-dave --operation CreateTokens --user-principal User:sec-erin
--list --topic sec-orders
--list --topic sec-orders --principal User:sec-alice --principal User:sec-carol
--list --topic sec-prefix --resource-pattern-type match
--list --topic sec-pre --resource-pattern-type prefixed
--list --group sec-group
--list --transactional-id sec-tx
--list --user-principal User:sec-erin
--list --topic sec-nothing
--remove --force --allow-principal User:sec-alice --operation Read --topic sec-orders
--list --topic sec-orders
--remove --force --deny-principal User:sec-bob --deny-host 10.0.0.1 --operation Write --topic sec-orders
--remove --force --topic sec-pre --resource-pattern-type prefixed
--remove --force --topic sec-orders --group sec-group --transactional-id sec-tx --user-principal User:sec-erin
--list --topic sec-orders --group sec-group --transactional-id sec-tx --user-principal User:sec-erin
--add --allow-principal sec-nobody --operation Read --topic sec-orders
--add --allow-principal User:sec-alice --operation Create --group sec-group
--add --allow-principal User:sec-alice --operation Read --topic sec-orders --resource-pattern-type match
--list --topic sec-orders
""".strip().splitlines()


class Node:
    """An Ottla node with the authorizer and the users of `ApachePair`."""

    def __init__(self, folder: Path) -> None:
        plain, sasl, controller = free_ports(3)
        config = folder / "server.properties"
        config.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={PLAIN} required user_{ADMIN}="{PASSWORD}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{ADMIN}
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
        )
        self.broker = BrokerProcess(folder / "data", config=config)
        self.bootstrap, self.secure = f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    with made.broker:
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log


def shown(said: Said) -> tuple[int, list[str]]:
    """Lines without their order, which is that of Java's hash sets, and without stack traces and times."""
    lines = [line.strip() for line in (said.out + "\n" + said.err).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("at ", "...", "SLF4J"))]
    return said.code, sorted(re.sub(r"\[\d{4}-[^\]]*\] ", "", line) for line in kept)


def test_kafka_acls_say_the_same(node: Node, apache_pair: ApachePair, java_tools: JavaTools) -> None:
    config = apache_pair.admin_config()
    for line in LINES:
        words = ["--command-config", str(config), *line.split()]
        wanted = shown(java_tools.run("acls", "--bootstrap-server", apache_pair.secure, *words))
        got = shown(java_tools.run("acls", "--bootstrap-server", node.secure, *words))
        for _ in range(50):
            if got == wanted or not line.startswith("--list"):
                break
            # Apache Kafka's other broker may have heard of a change only now.
            wanted = shown(java_tools.run("acls", "--bootstrap-server", apache_pair.secure, *words))
        assert got == wanted, line


def test_client_compatibility_test_passes(node: Node, java_tools: JavaTools) -> None:
    """It speaks plain text only, and gives a broker ten seconds, which are few on a busy machine."""
    for attempt in range(3):
        topic = f"sec-compatible-{attempt}"
        made = java_tools.run("topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", topic)
        assert made.code == 0, made
        said = run_java(
            "org.apache.kafka.tools.ClientCompatibilityTest",
            *("--bootstrap-server", node.bootstrap, "--topic", topic, "--num-cluster-nodes", 1),
            *("--offsets-for-times-supported", "true", "--cluster-id-supported", "true"),
            *("--expect-record-too-large-exception", "false", "--create-topics-supported", "true"),
            *("--describe-acls-supported", "true", "--describe-configs-supported", "true"),
            *("--idempotent-producer-supported", "true"),
            check=False,
        )
        if "Timed out" not in said:
            break
    assert "SUCCESS" in said, said
