"""OAUTHBEARER with a real issuer: clients get tokens from it, and the broker knows only its public keys."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ottla import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from token_issuer import AUDIENCE, ISSUER, TokenIssuer

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRETS = {"broker": "broker-s3cret", "alice": "alice-s3cret", "mallory": "mallory-s3cret"}

pytestmark = pytest.mark.slow


class Cluster:
    """A node whose brokers and clients log in with tokens, over TLS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.issuer = TokenIssuer(dict(SECRETS), lifetime_s=4)
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        write_pem(self.authority.issue("broker"), folder / "broker.pem")
        self.port, self.controller, self.second_port = free_ports(3)
        self.broker = self._node(1, "--standalone").start()

    def _node(self, node_id: int, *flags: str) -> BrokerProcess:
        file = self.folder / f"server-{node_id}.properties"
        file.write_text(self._properties(node_id))
        words = ["storage", "format", "-c", str(file), "-t", "oauth", *flags]
        subprocess.run([sys.executable, "-m", "ottla", *words], check=True, capture_output=True)
        return BrokerProcess(self.folder / f"data-{node_id}", config=file, arguments=["--log-level", "info"])

    def second(self) -> BrokerProcess:
        """A node that is a broker only."""
        return self._node(2)

    def _properties(self, node_id: int) -> str:
        roles, port, controllers = (
            "broker,controller",
            self.port,
            f",CONTROLLER://127.0.0.1:{self.controller}",
        )
        if node_id == 2:
            roles, port, controllers = "broker", self.second_port, ""
        return f"""
process.roles={roles}
node.id={node_id}
controller.quorum.bootstrap.servers=127.0.0.1:{self.controller}
controller.listener.names=CONTROLLER
listeners=TOKENS://127.0.0.1:{port}{controllers}
listener.security.protocol.map=CONTROLLER:SASL_SSL,TOKENS:SASL_SSL
inter.broker.listener.name=TOKENS
log.dirs={self.folder / f"data-{node_id}"}
offsets.topic.replication.factor=1
ssl.keystore.location={self.folder / "broker.pem"}
ssl.keystore.type=PEM
ssl.truststore.location={self.trust}
ssl.truststore.type=PEM
sasl.enabled.mechanisms=OAUTHBEARER
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
sasl.mechanism.controller.protocol=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={OAUTH} required;
listener.name.controller.oauthbearer.sasl.jaas.config={OAUTH} required;
sasl.oauthbearer.jwks.endpoint.url={self.issuer.url}/jwks
sasl.oauthbearer.expected.issuer={ISSUER}
sasl.oauthbearer.expected.audience={AUDIENCE}
sasl.oauthbearer.token.endpoint.url={self.issuer.url}/token
sasl.oauthbearer.client.credentials.client.id=broker
sasl.oauthbearer.client.credentials.client.secret={SECRETS["broker"]}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:broker;User:alice
"""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def properties(self, name: str, **changes: str) -> Path:
        """Client properties as of Kafka's tools: client_credentials unless changed."""
        keys = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.trust),
            "ssl.truststore.type": "PEM",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH} required;",
            "sasl.oauthbearer.token.endpoint.url": f"{self.issuer.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": name,
            "sasl.oauthbearer.client.credentials.client.secret": SECRETS[name],
        } | changes
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
        return file

    def librdkafka(self, name: str, **changes: Any) -> dict[str, Any]:
        def token(_: str) -> tuple[str, float]:
            return self.issuer.token(name), time.time() + self.issuer.lifetime_s

        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
            **changes,
        }

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla", words[0], "--bootstrap-server", self.bootstrap, *words[1:]]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("oauth"))
    try:
        yield made
        assert made.broker.stop() == 0, made.broker.log
        assert "Traceback" not in made.broker.log, made.broker.log
        assert "s3cret" not in made.broker.log
        assert "eyJ" not in made.broker.log
    finally:
        made.broker.kill()
        made.issuer.close()


def test_librdkafka_keeps_its_session_while_tokens_come_and_go(cluster: Cluster) -> None:
    """Tokens last four seconds, so that both clients authenticate again while they run."""
    producer = Producer(cluster.librdkafka("alice", acks="all"))
    consumer = Consumer(
        cluster.librdkafka("alice", **{"group.id": "readers", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["letters"])
    sent, seen, end = 0, 0, time.monotonic() + 6
    while time.monotonic() < end or seen < sent:
        if time.monotonic() < end:
            producer.produce("letters", b"%d" % sent)
            sent += 1
        producer.poll(0.05)
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            seen += 1
    assert producer.flush(30) == 0
    assert seen == sent > 10
    consumer.close()


def test_a_token_for_somebody_else_is_refused(cluster: Cluster) -> None:
    errors: list[KafkaError] = []
    settings = cluster.librdkafka("alice", error_cb=errors.append, log_level=0)
    settings["oauth_cb"] = lambda _: (cluster.issuer.token("alice", aud="elsewhere"), time.time() + 60)
    producer = Producer(settings)
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(0.2)
    assert "invalid_token" in str(errors)
    assert "the token's audience is 'elsewhere'" in cluster.broker.log


def test_kafka_python(cluster: Cluster) -> None:
    kafka = pytest.importorskip("kafka")
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return cluster.issuer.token("alice")

    settings = {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.trust),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = kafka.KafkaProducer(**settings)
    assert producer.send("from-kafka-python", b"x").get(30).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer("from-kafka-python", auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"x"
    consumer.close()


def test_our_own_clients(cluster: Cluster) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.trust),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": lambda: cluster.issuer.token("alice"),
    }
    with KafkaAdminClient(**settings) as admin:
        admin.create_topics([NewTopic("ours", 1, 1)])
    with KafkaProducer(**settings) as producer:
        producer.send("ours", b"x").get(30)
    with KafkaConsumer("ours", auto_offset_reset="earliest", **settings) as consumer:
        assert next(iter(consumer)).value == b"x"


def test_tools_ask_the_token_endpoint(cluster: Cluster) -> None:
    file = str(cluster.properties("alice"))
    created = cluster.run("topics", "--command-config", file, "--create", "--topic", "tools")
    assert "Created topic tools." in created.stdout
    assert (
        cluster.run("produce", "--command-config", file, "--topic", "tools", stdin="a\nb\n").returncode == 0
    )
    count = ("--from-beginning", "--max-messages", "2")
    read = cluster.run("consume", "--command-config", file, "--topic", "tools", *count)
    assert read.stdout.split() == ["a", "b"]


def test_rights_are_those_of_the_subject(cluster: Cluster) -> None:
    done = cluster.run(
        "topics", "--command-config", str(cluster.properties("mallory")), "--create", "--topic", "x"
    )
    assert done.returncode == 1
    assert "not authorized" in done.stderr


def test_a_wrong_client_secret_says_so(cluster: Cluster) -> None:
    key = "sasl.oauthbearer.client.credentials.client.secret"
    done = cluster.run(
        "topics", "--command-config", str(cluster.properties("alice", **{key: "wr0ng"})), "--list"
    )
    assert done.returncode == 1
    assert "401" in done.stderr
    assert "invalid_client" in done.stderr
    assert "wr0ng" not in done.stderr


def test_a_token_file_and_a_signed_assertion(cluster: Cluster) -> None:
    token = cluster.folder / "alice.jwt"
    token.write_text(cluster.issuer.token("alice"))
    by_file = {"sasl.oauthbearer.token.endpoint.url": f"file://{token}"}
    file = str(cluster.properties("alice", **by_file))
    assert cluster.run("topics", "--command-config", file, "--list").returncode == 0

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    cluster.issuer.assertion_key = private.public_key()
    key = cluster.folder / "assertion.pem"
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    by_assertion = {
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": str(key),
        "sasl.oauthbearer.assertion.claim.iss": "alice",
        "sasl.oauthbearer.assertion.claim.sub": "alice",
        "sasl.oauthbearer.assertion.claim.aud": ISSUER,
    }
    done = cluster.run(
        "topics", "--command-config", str(cluster.properties("alice", **by_assertion)), "--list"
    )
    assert done.returncode == 0, done.stderr


def test_nodes_log_in_to_each_other_with_tokens(cluster: Cluster) -> None:
    second = cluster.second()
    try:
        second.start()
        file = str(cluster.properties("alice"))
        words = ("--create", "--topic", "copied", "--replication-factor", "2", "--partitions", "2")
        assert cluster.run("topics", "--command-config", file, *words).returncode == 0
        producer = Producer(cluster.librdkafka("alice", acks="all"))
        delivered: list[bool] = []
        # Longer than a token lasts.
        end = time.monotonic() + cluster.issuer.lifetime_s + 2
        while time.monotonic() < end:
            producer.produce("copied", b"x", on_delivery=lambda error, _: delivered.append(error is None))
            producer.poll(0.1)
        assert producer.flush(30) == 0
        assert all(delivered)
        described = cluster.run(
            "topics", "--command-config", file, "--describe", "--under-replicated-partitions"
        )
        assert described.stdout.strip() == "", second.log
        assert "Traceback" not in second.log
    finally:
        second.kill()


def test_new_keys_of_the_issuer_are_found(cluster: Cluster) -> None:
    cluster.issuer.new_key("rotated")
    producer = Producer(cluster.librdkafka("alice"))
    # The first login with an unknown key fails and makes the broker ask for the keys.
    producer.produce("letters", b"after the rotation")
    assert producer.flush(60) == 0


def test_the_reader_for_spark_logs_in_with_the_keys_of_a_java_client(cluster: Cluster) -> None:
    from ottla.admin.cluster import Cluster as Brokers
    from ottla.pipeline.decoding import decode
    from ottla.pipeline.fetching import OffsetRange, fetch_ranges
    from ottla.pipeline.reader_options import parse_options

    # The topic is created by the first record.
    producer = Producer(cluster.librdkafka("alice"))
    for number in range(100):
        producer.produce("read-by-spark", b"%d" % number)
    assert producer.flush(30) == 0
    lines = cluster.properties("alice").read_text().splitlines()
    kafka = {f"kafka.{key}": text for key, _, text in (line.partition("=") for line in lines)}
    given = {**kafka, "kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "read-by-spark"}
    options = parse_options(given, streaming=False)
    assert "s3cret" not in repr(options)
    # A task gets the options pickled.
    brokers = Brokers(pickle.loads(pickle.dumps(options)).settings)
    found = [
        value
        for part in fetch_ranges(brokers, [OffsetRange("read-by-spark", 0, 0, 100)])
        for batch in decode(part, ("value",))
        for value in batch.column(0).to_pylist()
    ]
    brokers.close()
    assert found == [b"%d" % number for number in range(100)]
