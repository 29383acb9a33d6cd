"""Real clients on listeners with TLS and SASL: with the right credentials they work, else they get Kafka's errors."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from ottla.testing.certificates import CertificateAuthority, write_pem, write_pkcs12
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Secured:
    """A broker with a listener of each kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority.create()
        self.trust = self.authority.write_truststore(folder / "ca.pem")
        write_pkcs12(self.authority.issue("broker"), folder / "broker.p12", "changeit")
        self.client = write_pem(self.authority.issue("alice", hosts=()), folder / "alice.pem")
        names = ("PLAINTEXT", "SSL", "MTLS", "SASL_SSL", "SASL_PLAINTEXT")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        config = folder / "server.properties"
        config.write_text(self._properties())
        subprocess.run(
            [
                *(sys.executable, "-m", "ottla", "storage", "format", "-c", str(config), "-t", "auto"),
                *("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
                *("--add-scram", "SCRAM-SHA-512=[name=bob,password=bob-secret]"),
                "--standalone",
            ],
            check=True,
            capture_output=True,
        )
        self.broker = BrokerProcess(
            folder / "data", config=config, arguments=["--log-level", "debug"]
        ).start()

    def _properties(self) -> str:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        return f"""
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{self.ports["PLAINTEXT"] + 0}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://127.0.0.1:0
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL_SSL:SASL_SSL,\\
SASL_PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={self.folder / "data"}
offsets.topic.replication.factor=1
ssl.keystore.location={self.folder / "broker.p12"}
ssl.keystore.type=PKCS12
ssl.keystore.password=changeit
ssl.truststore.location={self.trust}
ssl.truststore.type=PEM
listener.name.mtls.ssl.client.auth=required
listener.name.mtls.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN} required user_alice="alice-secret" user_carol="c";
listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN} required user_alice="alice-secret";
listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms=3000
"""

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def librdkafka(self, listener: str, mechanism: str | None = None, **changes: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap(listener)}
        if listener != "PLAINTEXT":
            settings["security.protocol"] = "SSL" if listener == "MTLS" else listener
        if listener in ("SSL", "MTLS", "SASL_SSL"):
            settings["ssl.ca.location"] = str(self.trust)
        if listener == "MTLS":
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(self.client)
        if mechanism is not None:
            user = "bob" if mechanism.endswith("512") else "alice"
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": f"{user}-secret",
            }
        return settings | {key.replace("_", "."): value for key, value in changes.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield made
        assert made.broker.running, made.broker.log
        assert made.broker.stop() == 0, made.broker.log
        assert "Traceback" not in made.broker.log, made.broker.log
        for secret in ("alice-secret", "bob-secret", "changeit"):
            assert secret not in made.broker.log
    finally:
        made.broker.kill()


WAYS = [
    ("PLAINTEXT", None),
    ("SSL", None),
    ("MTLS", None),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
]


def round_trip(settings: dict[str, Any], topic: str, values: list[bytes]) -> list[bytes]:
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(settings | {"group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    while len(got) < len(values):
        for message in consumer.consume(100, timeout=60):
            assert message.error() is None, message.error()
            got.append(message.value())
    consumer.close()
    return got


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_librdkafka_produces_and_consumes_in_a_group(
    secured: Secured, topic: str, listener: str, mechanism: str | None
) -> None:
    values = [b"%06d" % number * 50 for number in range(3_000)]
    assert round_trip(secured.librdkafka(listener, mechanism), topic, values) == values


@pytest.mark.parametrize(("listener", "mechanism"), WAYS[1:])
def test_the_pipeline_reads_raw_batches(
    secured: Secured, topic: str, listener: str, mechanism: str | None
) -> None:
    pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")
    from ottla.admin.cluster import Cluster
    from ottla.client.cluster_settings import writer_settings
    from ottla.pipeline.decoding import decode
    from ottla.pipeline.fetching import OffsetRange, fetch_ranges

    producer = Producer(secured.librdkafka("PLAINTEXT"))
    for number in range(500):
        producer.produce(topic, b"%03d" % number * 1_000)
    assert producer.flush(60) == 0
    options = secured.librdkafka(listener, mechanism)
    brokers = Cluster(writer_settings(options.pop("bootstrap.servers"), options))
    found: list[bytes] = []
    for part in fetch_ranges(brokers, [OffsetRange(topic, 0, 0, 500)]):
        for batch in decode(part, ("value",)):
            found += batch.column(0).to_pylist()
    brokers.close()
    assert found == [b"%03d" % number * 1_000 for number in range(500)]


def first_error(settings: dict[str, Any]) -> KafkaError:
    """The error that a client without access gets."""
    errors: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": errors.append, "reconnect.backoff.ms": 50})
    for _ in range(600):
        producer.poll(0.1)
        known = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
        if known:
            return known[0]
    raise AssertionError("no error came within a minute")


def test_a_wrong_password_gives_kafkas_sentence(secured: Secured) -> None:
    plain = first_error(secured.librdkafka("SASL_SSL", "PLAIN", sasl_password="wrong"))
    assert plain.code() == KafkaError._AUTHENTICATION
    assert "Authentication failed: Invalid username or password" in plain.str()
    scram = first_error(secured.librdkafka("SASL_SSL", "SCRAM-SHA-256", sasl_password="wrong"))
    assert scram.code() == KafkaError._AUTHENTICATION
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in scram.str()
    unknown = first_error(secured.librdkafka("SASL_SSL", "SCRAM-SHA-256", sasl_username="nobody"))
    assert unknown.str().split("Broker")[-1] == scram.str().split("Broker")[-1] or (
        "due to invalid credentials" in unknown.str()
    )


def test_a_client_that_does_not_trust_the_broker_does_not_connect(secured: Secured, tmp_path: Path) -> None:
    other = CertificateAuthority.create("other").write_truststore(tmp_path / "other.pem")
    error = first_error(secured.librdkafka("SSL", ssl_ca_location=str(other)))
    # On a busy machine librdkafka notices the end of the connection first; its text names the certificate either way.
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    assert "certificate" in error.str()


@pytest.mark.slow
def test_mutual_tls_asks_for_a_certificate_of_the_authority(secured: Secured, tmp_path: Path) -> None:
    settings = secured.librdkafka("MTLS")
    without = {key: value for key, value in settings.items() if "certificate" not in key and "key" not in key}
    assert first_error(without).code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    expired = secured.authority.issue("alice", hosts=(), lifetime=timedelta(days=-2))
    path = str(write_pem(expired, tmp_path / "expired.pem"))
    error = first_error(secured.librdkafka("MTLS", ssl_certificate_location=path, ssl_key_location=path))
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    assert "Failed TLS handshake with 127.0.0.1 on listener MTLS: peer did not return a certificate" in (
        secured.broker.log
    )
    assert "certificate has expired" in secured.broker.log


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"])
def test_something_else_on_a_tls_port_is_closed_and_named_in_the_log(secured: Secured, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["SSL"]), 10) as client:
        client.sendall(first)
        while client.recv(4096):
            pass
    assert "on listener SSL: the client does not speak TLS" in secured.broker.log


@pytest.mark.slow
def test_a_session_with_an_end_is_renewed_while_the_client_works(secured: Secured, topic: str) -> None:
    """librdkafka renews at 90 % of three seconds (KIP-368): records of ten seconds arrive, none twice."""
    settings = secured.librdkafka("SASL_SSL", "SCRAM-SHA-512")
    producer = Producer(settings | {"linger.ms": 5})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
        producer.poll(0.1)
    assert producer.flush(60) == 0
    values = [b"%d" % number for number in range(100)]
    got = round_trip(secured.librdkafka("SSL"), f"{topic}-other", values)
    assert got == values
    assert "its session has expired" not in secured.broker.log


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_the_tools_come_in_with_the_properties_of_a_java_client(
    secured: Secured, topic: str, tmp_path: Path, kind: str
) -> None:
    trust, password = secured.trust, ""
    if kind == "PKCS12":
        trust, password = tmp_path / "trust.p12", "ssl.truststore.password=changeit\n"
        anchor = pkcs12.PKCS12Certificate(secured.authority.identity.certificate, b"ca")
        encryption = BestAvailableEncryption(b"changeit")
        trust.write_bytes(pkcs12.serialize_java_truststore([anchor], encryption))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"""
security.protocol=SASL_SSL
ssl.truststore.type={kind}
ssl.truststore.location={trust}
{password}sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM} required username="bob" password="bob-secret";
"""
    )
    command = [sys.executable, "-m", "ottla", "topics", "--bootstrap-server", secured.bootstrap("SASL_SSL")]
    done = subprocess.run(
        [*command, "--command-config", str(properties), "--create", "--topic", topic],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"Created topic {topic}.\n", done.stderr
