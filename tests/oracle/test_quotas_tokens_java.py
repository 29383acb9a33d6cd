"""Kafka's own kafka-configs and kafka-delegation-tokens on Ottla, and Java's client that logs in with a token.

kafka-configs sets quotas, SCRAM users and key stores.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import JavaTools, Said
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Node:
    """A broker with users, and Kafka's tools that speak to it."""

    def __init__(self, folder: Path, java: JavaTools) -> None:
        self._folder = folder
        self._java = java
        port, self.tls_port, controller = free_ports(3)
        self.authority = CertificateAuthority.create()
        self.key_store = write_pem(self.authority.issue("broker"), folder / "broker.pem")
        self.bootstrap = f"127.0.0.1:{port}"
        config = folder / "server.properties"
        config.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=CLIENTS://127.0.0.1:{port},TLS://127.0.0.1:{self.tls_port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,TLS:SSL
ssl.keystore.type=PEM
ssl.keystore.location={self.key_store}
inter.broker.listener.name=CLIENTS
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.clients.plain.sasl.jaas.config={PLAIN} required username="admin" password="a" user_admin="a";
delegation.token.secret.key=the-key-of-the-cluster
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
"""
        )
        self.broker = BrokerProcess(folder / "data", config=config).start()
        self.admin = self.properties("admin", "PLAIN", f'{PLAIN} required username="admin" password="a";')

    def properties(self, name: str, mechanism: str, login: str) -> str:
        file = self._folder / f"{name}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"
        )
        return str(file)

    def run(self, tool: str, *arguments: str, config: str | None = None) -> Said:
        said = self.attempt(tool, *arguments, config=config)
        assert said.code == 0, said
        return said

    def attempt(self, tool: str, *arguments: str, config: str | None = None) -> Said:
        return self._java.run(
            tool, "--bootstrap-server", self.bootstrap, "--command-config", config or self.admin, *arguments
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"), java_tools)
    try:
        yield made
        assert made.broker.stop() == 0, made.broker.log
    finally:
        made.broker.kill()


@pytest.mark.parametrize(
    ("entity", "quotas", "shown"),
    [
        (
            ["users:alice"],
            {"producer_byte_rate": "1024", "request_percentage": "12.5"},
            "user-principal 'alice'",
        ),
        (["users:"], {"consumer_byte_rate": "2048"}, "the default user-principal"),
        (["clients:app"], {"controller_mutation_rate": "5.5"}, "client-id 'app'"),
        (
            ["users:alice", "clients:"],
            {"producer_byte_rate": "7"},
            "user-principal 'alice', the default client-id",
        ),
        (["ips:127.0.0.9"], {"connection_creation_rate": "100"}, "ip '127.0.0.9'"),
    ],
)
def test_kafka_configs_sets_shows_and_removes_quotas(
    node: Node, entity: list[str], quotas: dict[str, str], shown: str
) -> None:
    names = [
        word
        for each in entity
        for kind, _, name in [each.partition(":")]
        for word in ["--entity-type", kind, *(["--entity-name", name] if name else ["--entity-default"])]
    ]
    values = ",".join(f"{key}={value}" for key, value in quotas.items())
    node.run("configs", "--alter", "--add-config", values, *names)
    line = next(
        line for line in node.run("configs", "--describe", *names).out.splitlines() if "Quota" in line
    )
    assert line.startswith(f"Quota configs for {shown} are ")
    found = dict(pair.split("=") for pair in line.rpartition(" are ")[2].split(", "))
    assert {key: float(value) for key, value in found.items()} == {
        key: float(value) for key, value in quotas.items()
    }
    node.run("configs", "--alter", "--delete-config", ",".join(quotas), *names)
    assert "Quota" not in node.run("configs", "--describe", *names).out


def test_a_token_of_kafkas_tool_lets_javas_client_in_until_it_ends(node: Node) -> None:
    made = node.run(
        "delegation-tokens",
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:bob",
    ).out
    token_id = re.findall(r"tokenId : (\S+)", made)[0]
    line = next(line for line in made.splitlines() if line.startswith(token_id))
    hmac = line.split()[1]
    assert "User:admin" in line and "[User:bob]" in line
    login = f'{SCRAM} required username="{token_id}" password="{hmac}" tokenauth="true";'
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        by_token = node.properties("token", mechanism, login)
        node.run("topics", "--list", config=by_token)
    node.run("delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    shown = node.run("delegation-tokens", "--describe", "--owner-principal", "User:admin").out
    assert token_id in shown and "Total number of tokens : 1" in shown
    node.run("delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    shown = node.run("delegation-tokens", "--describe", "--owner-principal", "User:admin").out
    assert token_id not in shown


def test_kafka_configs_makes_shows_and_removes_scram_users(node: Node) -> None:
    who = ("--entity-type", "users", "--entity-name", "dave")
    users = ["SCRAM-SHA-256=[iterations=8192,password=open]", "SCRAM-SHA-512=[password=sesame]"]
    # As in Apache Kafka 4.3.1, one request changes one mechanism of a user.
    both = node.attempt("configs", "--alter", "--add-config", ",".join(users), *who)
    assert both.code != 0 and "cannot be altered twice in the same request" in both.err
    for user in users:
        node.run("configs", "--alter", "--add-config", user, *who)
    shown = node.run("configs", "--describe", *who).out
    line = next(line for line in shown.splitlines() if line.startswith("SCRAM"))
    assert line.startswith("SCRAM credential configs for user-principal 'dave' are ")
    kept = set(line.rpartition(" are ")[2].split(", "))
    assert kept == {"SCRAM-SHA-256=iterations=8192", "SCRAM-SHA-512=iterations=4096"}
    for mechanism, password in (("SCRAM-SHA-256", "open"), ("SCRAM-SHA-512", "sesame")):
        login = f'{SCRAM} required username="dave" password="{password}";'
        node.run("topics", "--list", config=node.properties("dave", mechanism, login))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        node.run("configs", "--alter", "--delete-config", mechanism, *who)
    assert "SCRAM" not in node.run("configs", "--describe", *who).out


def test_kafka_configs_changes_the_key_store_of_a_listener(node: Node) -> None:
    who = ("--entity-type", "brokers", "--entity-name", "1")
    key = "listener.name.tls.ssl.keystore.location"
    before = ssl.get_server_certificate(("127.0.0.1", node.tls_port))
    renewed = write_pem(node.authority.issue("broker"), node.key_store.with_name("renewed.pem"))
    node.run("configs", "--alter", "--add-config", f"{key}={renewed}", *who)
    while (after := ssl.get_server_certificate(("127.0.0.1", node.tls_port))) == before:
        pass
    assert after in renewed.read_text()
    assert f"{key}={renewed}" in node.run("configs", "--describe", *who).out
    other = write_pem(node.authority.issue("another"), node.key_store.with_name("other.pem"))
    refused = node.attempt("configs", "--alter", "--add-config", f"{key}={other}", *who)
    assert refused.code != 0 and "ssl.allow.dn.changes" in refused.out + refused.err
    assert ssl.get_server_certificate(("127.0.0.1", node.tls_port)) == after
