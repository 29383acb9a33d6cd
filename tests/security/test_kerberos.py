"""GSSAPI with a real KDC: nodes log in to each other, clients of six kinds to them; who has no ticket stays out.

Clients and brokers use SASL_SSL, the controller's listener SASL_PLAINTEXT.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gssapi", reason="needs pip install 'ottla[kerberos]' (Debian package libkrb5-dev)")

from oracle.kafka_tools import needs_java
from ottla.admin.acls import Entry, Pattern, create_acls
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings, SecuritySettings
from ottla.credentials.kerberos import KerberosLogin
from ottla.errors import ApiException, ErrorCode
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import DescribeAclsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from security.kdc import REALM, Kdc, kdc_is_here
from security.matrix_clients import VALUES, Franz
from security.matrix_node import Way

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not kdc_is_here(), reason="needs a KDC (Debian packages krb5-kdc, krb5-admin-server, krb5-user)"
    ),
]

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
NODES = (1, 2)
RULES = r"RULE:[2:$1.$2](carol\.admin)s/\..*/-boss/,DEFAULT"


class KerberosCluster:
    """Two nodes whose only way in is Kerberos: for clients, between brokers, and to the controller."""

    def __init__(self, folder: Path, kdc: Kdc) -> None:
        self.folder, self.kdc = folder, kdc
        self.service = kdc.keytab("kafka", ["kafka/localhost"])
        self.alice = kdc.keytab("alice", ["alice"])
        self.carol = kdc.keytab("carol", ["carol/admin"])
        authority = CertificateAuthority.create()
        self.trust = authority.write_truststore(folder / "ca.pem")
        self.key_store = write_pem(authority.issue("broker"), folder / "broker.pem")
        ports = free_ports(3)
        self.controller, self.ports = ports[0], dict(zip(NODES, ports[1:], strict=True))
        self.nodes = [self._node(each) for each in NODES]
        self.bootstrap = f"localhost:{self.ports[1]}"

    def _node(self, node_id: int) -> BrokerProcess:
        principal = f"kafka/localhost@{REALM}"
        login = f'{KRB5} required useKeyTab=true keyTab="{self.service}" principal="{principal}";'
        listeners = f"CLIENTS://localhost:{self.ports[node_id]}"
        if node_id == 1:
            listeners += f",CONTROLLER://localhost:{self.controller}"
        file = self.folder / f"node{node_id}.properties"
        file.write_text(
            f"""
process.roles={"broker,controller" if node_id == 1 else "broker"}
node.id={node_id}
controller.quorum.voters=1@localhost:{self.controller}
controller.listener.names=CONTROLLER
listeners={listeners}
advertised.listeners=CLIENTS://localhost:{self.ports[node_id]}
listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT,CLIENTS:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={self.key_store}
ssl.truststore.type=PEM
ssl.truststore.location={self.trust}
inter.broker.listener.name=CLIENTS
sasl.enabled.mechanisms=GSSAPI
sasl.mechanism.inter.broker.protocol=GSSAPI
sasl.mechanism.controller.protocol=GSSAPI
sasl.kerberos.service.name=kafka
sasl.kerberos.principal.to.local.rules={RULES.replace(chr(92), chr(92) * 2)}
listener.name.clients.gssapi.sasl.jaas.config={login}
listener.name.controller.gssapi.sasl.jaas.config={login}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:kafka
log.dirs={self.folder / f"data{node_id}"}
offsets.topic.replication.factor=2
transaction.state.log.replication.factor=2
transaction.state.log.min.isr=1
min.insync.replicas=2
connection.failed.authentication.delay.ms=10
"""
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ottla", "storage", "format"),
                *("-c", str(file), "-t", "5L6g3nShT-eMCtK--X86sw"),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return BrokerProcess(
            self.folder / f"data{node_id}",
            config=file,
            environment=self.kdc.environment,
            arguments=["--log-level", "debug"],
        )

    def cluster(self, login: KerberosLogin) -> Cluster:
        security = SecuritySettings(
            protocol="SASL_SSL", ca_file=str(self.trust), mechanism="GSSAPI", kerberos=login
        )
        return Cluster(ClusterSettings((("localhost", self.ports[1]),), security=security))

    def login(self, keytab: Path, principal: str) -> KerberosLogin:
        return KerberosLogin("kafka", f"{principal}@{REALM}", str(keytab))

    def properties(self, keytab: Path, principal: str) -> Path:
        """For the tools, ours and Java's."""
        file = self.folder / f"{principal.replace('/', '-')}.properties"
        file.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={self.trust}\n"
            "sasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
            f'sasl.jaas.config={KRB5} required useKeyTab=true keyTab="{keytab}" principal="{principal}@{REALM}";\n'
        )
        return file

    def ottla(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ottla", *map(str, words)],
            env={**os.environ, **self.kdc.environment},
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosCluster]:
    folder = tmp_path_factory.mktemp("kerberos")
    before = dict(os.environ)
    with Kdc(folder) as kdc:
        os.environ.update(kdc.environment)
        made = KerberosCluster(folder, kdc)
        try:
            for node in made.nodes:
                node.launch()
            for node in made.nodes:
                node.wait_ready()
            prepare(made)
            yield made
            for node in made.nodes:
                assert "Traceback" not in node.log, node.log[-3000:]
                assert node.stop() == 0, node.log[-3000:]
        finally:
            os.environ.clear()
            os.environ.update(before)
            for node in made.nodes:
                node.kill()


def prepare(made: KerberosCluster) -> None:
    """Topics on both nodes, and alice's rights. The administrator logs in with our own tools."""
    admin = made.properties(made.service, "kafka/localhost")
    at = ("--bootstrap-server", made.bootstrap, "--command-config", admin)
    for topic in ("letters", "by-franz"):
        words = ("--create", "--topic", topic, "--replication-factor", "2", "--partitions", "1")
        done = made.ottla("topics", *at, *words)
        assert done.returncode == 0, done.stderr + made.nodes[0].log[-3000:]
    cluster = made.cluster(made.login(made.service, "kafka/localhost"))
    may = Entry("User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
    ):
        create_acls(cluster, [(Pattern(kind, name, PatternType.LITERAL), may)])
    cluster.close()


def test_kafka_python_writes_to_both_replicas_and_reads_in_a_group(kerberos: KerberosCluster) -> None:
    kafka = pytest.importorskip("kafka")
    kerberos.kdc.run("kinit", "-k", "-t", str(kerberos.alice), "alice")
    settings: dict[str, Any] = {
        "bootstrap_servers": kerberos.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(kerberos.trust),
        "sasl_mechanism": "GSSAPI",
    }
    producer = kafka.KafkaProducer(**settings, acks="all")
    for number in range(20):
        producer.send("letters", b"kafka-python %d" % number).get(60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "letters",
        **settings,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    values = {next(consumer).value for _ in range(20)}
    consumer.close()
    assert b"kafka-python 19" in values


def test_aiokafka_transacts(kerberos: KerberosCluster) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    kerberos.kdc.run("kinit", "-k", "-t", str(kerberos.alice), "alice")

    async def transact() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=kerberos.bootstrap,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(kerberos.trust)),
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
            sasl_kerberos_domain_name="localhost",
            transactional_id="letters-by-aiokafka",
        )
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait("letters", b"aiokafka")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(transact(), 120))


@needs_java
@pytest.mark.java
def test_javas_client_writes_and_reads(kerberos: KerberosCluster) -> None:
    file = kerberos.properties(kerberos.alice, "alice")

    def java(tool: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = ["java", *LEAN_JVM_FLAGS, f"-Djava.security.krb5.conf={kerberos.kdc.config}"]
        command += [
            "-cp",
            kafka_classpath(),
            tool,
            "--bootstrap-server",
            kerberos.bootstrap,
            "--topic",
            "by-java",
        ]
        return subprocess.run(
            [*command, "--command-config", str(file), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    wrote = java("org.apache.kafka.tools.ConsoleProducer", stdin="by java\n")
    assert wrote.returncode == 0, wrote.stderr
    words = ("--group", "java", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    read = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *words)
    assert "by java" in read.stdout.splitlines(), read.stderr


def test_kcat_writes_and_reads_in_a_group(kerberos: KerberosCluster) -> None:
    """On librdkafka; the wheels of confluent-kafka are built without GSSAPI."""
    if shutil.which("kcat") is None:
        pytest.skip("needs kcat (Debian package kcat)")
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": kerberos.trust,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.keytab": kerberos.alice,
        "sasl.kerberos.principal": f"alice@{REALM}",
        "auto.offset.reset": "earliest",
    }
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]

    def kcat(*more: str, stdin: bytes = b"") -> bytes:
        command = ["kcat", "-b", kerberos.bootstrap, *words, *more]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
        if b"No worthy mechs found" in done.stderr:
            pytest.skip("needs Cyrus SASL's GSSAPI (Debian package libsasl2-modules-gssapi-mit)")
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", "by-kcat", stdin=b"by kcat\n")
    assert kcat("-q", "-c", "1", "-G", "kcat", "by-kcat") == b"by kcat\n"


def test_franz_go_writes_transacts_and_reads_in_a_group(kerberos: KerberosCluster) -> None:
    way = Way("GSSAPI", kerberos.bootstrap, kerberos.trust, user="alice")
    got = Franz().work(way, "by-franz", Keytab=str(kerberos.alice), Realm=REALM)
    assert got == VALUES


def test_rules_make_another_user_of_a_principal_with_two_parts(kerberos: KerberosCluster) -> None:
    cluster = kerberos.cluster(kerberos.login(kerberos.carol, "carol/admin"))
    answer = cluster.ask(
        DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    )
    cluster.close()
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "User:carol-boss is Denied" in kerberos.nodes[0].log


def refusal(kerberos: KerberosCluster, login: KerberosLogin) -> str:
    """Why our client, or the broker, ends the login."""
    cluster = kerberos.cluster(login)
    with pytest.raises(ApiException) as failed:
        cluster.any()
    cluster.close()
    return str(failed.value)


def test_a_client_without_a_valid_ticket_stays_out(kerberos: KerberosCluster) -> None:
    kdc, alice = kerberos.kdc, kerberos.login(kerberos.alice, "alice")
    assert "Kerberos gives no ticket" in refusal(kerberos, kerberos.login(kerberos.alice, "nobody"))
    assert "Kerberos gives no ticket" in refusal(kerberos, replace(alice, service="http"))
    # A key that was changed since: the KDC does not know it any more.
    old = kdc.keytab("eve", ["eve"])
    kept = old.read_bytes()
    kdc.keytab("eve", ["eve"])
    old.write_bytes(kept)
    assert "Kerberos gives no ticket" in refusal(kerberos, kerberos.login(old, "eve"))
    # A ticket that has ended.
    tickets = kdc.folder / "short"
    kdc.run("kinit", "-l", "1s", "-c", str(tickets), "-k", "-t", str(kerberos.alice), "alice")
    pause = threading.Event()
    while kdc.run("klist", "-s", "-c", str(tickets), check=False).returncode == 0:
        pause.wait(0.1)
    assert "xpired" in refusal(kerberos, KerberosLogin("kafka", None, None, str(tickets)))


def test_a_ticket_for_another_key_of_the_broker_is_refused_and_the_reason_is_in_the_log_only(
    kerberos: KerberosCluster,
) -> None:
    """The service `other` has a key that the broker does not know."""
    kerberos.kdc.keytab("other", ["other/localhost"])
    said = refusal(kerberos, replace(kerberos.login(kerberos.alice, "alice"), service="other"))
    assert (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
        in said
    )
    assert "Kerberos refuses the ticket" in kerberos.nodes[0].log


def test_nothing_but_a_ticket_is_believed(kerberos: KerberosCluster) -> None:
    tls = ssl.create_default_context(cafile=str(kerberos.trust))
    for token in (b"", b"\0alice\0alice", os.urandom(600), b"\x60\x82" * 200):
        with RawClient("localhost", kerberos.ports[1], tls=tls) as client:
            assert client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert all(node.running for node in kerberos.nodes)
