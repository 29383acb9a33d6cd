"""Bad input before and during authentication: closed, bounded, and said once in the log, never with a stack trace."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.credentials.stores import Identity
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.classes import WireRequest
from ottla.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from security.secured_node import ADMIN, ALICE, SecuredNode

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    folder = tmp_path_factory.mktemp("bad-input")
    made = SecuredNode(
        folder,
        {"ottla.audit.log.file": folder / "audit.log", "ottla.max.unauthenticated.connections": 20},
    )
    with made.broker:
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log
        with made.log_in(ADMIN) as client:
            assert client.ask(MetadataRequest(topics=[]), 12).error_code == 0


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"


def closed_after(port: int, data: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(data)
        try:
            while client.recv(1000):
                pass
        except ConnectionResetError:
            pass
        return True


@pytest.mark.parametrize("listener", ["PASSWORDS", "CERTIFICATES", "CONTROLLER"])
@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"\1" * 70_000,
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03",
    ],
    ids=["plain kafka", "http", "long record", "hello of 16 MB"],
)
def test_what_is_no_tls_is_closed_on_a_tls_port(node: SecuredNode, listener: str, data: bytes) -> None:
    assert closed_after(node.ports[listener], data)


def test_the_log_has_one_sentence_a_minute_and_address(tmp_path: Path) -> None:
    made = SecuredNode(tmp_path)
    with made.broker:
        for _ in range(5):
            closed_after(made.ports["CERTIFICATES"], b"GET / HTTP/1.1\r\n\r\n")
        assert made.broker.log.count("INFO ottla.net.entrance: Failed TLS handshake with 127.0.0.1") == 1
        assert "the client does not speak TLS" in made.broker.log


@pytest.mark.parametrize(
    ("data", "name"), [(b"\x16\x03\x01\x02\x00\x01\x00", "TLS"), (b"GET / HTTP/1.1", "HTTP")]
)
def test_tls_and_http_on_a_plain_port_are_named(
    start_broker: Callable[..., BrokerProcess], data: bytes, name: str
) -> None:
    broker = start_broker()
    for _ in range(3):
        assert closed_after(broker.port, data)
    assert broker.log.count(f"it speaks {name}, and listener PLAINTEXT does not") == 1


def bad_identity(node: SecuredNode, kind: str) -> Identity:
    if kind == "unknown authority":
        return CertificateAuthority.create("x").issue("admin")
    if kind == "expired":
        return node.authority.issue("admin", lifetime=timedelta(days=-2))
    if kind == "wrong purpose":
        return node.authority.issue("admin", purposes=(ExtendedKeyUsageOID.SERVER_AUTH,))
    if kind == "chain above 100 kB":
        return node.authority.issue("admin", hosts=tuple(f"{number:050}.test" for number in range(3000)))
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"{number:060}") for number in range(80)]
    return node.authority.issue(x509.Name(units))


@pytest.mark.parametrize(
    "kind",
    [
        *("unknown authority", "expired", "no certificate", "wrong purpose"),
        *("chain above 100 kB", "subject above 4 kB"),
    ],
)
def test_certificates_that_are_not_accepted(node: SecuredNode, kind: str) -> None:
    context = node.context()
    if kind != "no certificate":
        file = write_pem(bad_identity(node, kind), node.folder / f"{kind}.pem")
        context.load_cert_chain(file)
    with pytest.raises((ssl.SSLError, ConnectionError)), node.connect("CERTIFICATES", context) as client:
        # In TLS 1.3 a client learns of the refusal with its first read.
        client.ask(ApiVersionsRequest(), 0)


def test_an_old_version_of_tls_is_refused(node: SecuredNode) -> None:
    context = node.context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        node.connect("PASSWORDS", context)


def test_any_other_api_before_authentication_closes_the_connection_unread(node: SecuredNode) -> None:
    for request, version in ((MetadataRequest(), 12), (CreateTopicsRequest(), 5)):
        with node.connect("PASSWORDS", node.context()) as client:
            client.send(request, version)
            assert client.closed_by_broker()
    with node.connect("PASSWORDS", node.context()) as client:
        # Not even its length is waited for.
        client.socket.sendall((512 * 1024 + 1).to_bytes(4, "big"))
        assert client.closed_by_broker()


@pytest.mark.parametrize(
    "token",
    [
        b"p=tls-unique,,n=alice,r=x",
        b"x",
        b"n,,",
        b"n,,n=alice",
        b"n,,m=ext,n=alice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=" + b"a" * 5000 + b",r=x",
        b"n,,n=alice,r=" + "é".encode(),
        b"n,a=admin,n=alice,r=x",
        b"\xff\xfe",
        b"",
    ],
)
def test_bad_scram_messages_fail_with_the_general_sentence(node: SecuredNode, token: bytes) -> None:
    with node.connect("PASSWORDS", node.context()) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1).error_code == 0
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code == 0:
            # Every user gets a challenge; the proof fails.
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=x,p=eA=="), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        said = answer.error_message or ""
        assert said.startswith("Authentication failed") and "alice" not in said


def test_connections_that_do_not_authenticate_cannot_keep_others_out(node: SecuredNode) -> None:
    """Twenty may wait; more stay in the listen queue, nodes come in all the same, and time frees the places."""
    idle = [socket.create_connection(("127.0.0.1", node.ports["PASSWORDS"])) for _ in range(40)]
    try:
        until(lambda: "ottla.max.unauthenticated.connections" in node.broker.log)
        with node.certified("INTERNAL", "admin") as inside:
            assert inside.ask(MetadataRequest(topics=[]), 12).error_code == 0
    finally:
        for waiting in idle:
            waiting.close()
    with node.log_in(ALICE) as client:
        assert client.ask(MetadataRequest(topics=[]), 12).error_code == 0


def test_a_large_rsa_key_shakes_hands_in_a_thread(tmp_path: Path) -> None:
    made = SecuredNode(tmp_path)
    write_pem(made.authority.issue("node1", uris=("ottla:node:1",), rsa_bits=2304), made.keystore)
    with made.broker:
        clients = [made.log_in(ADMIN) for _ in range(10)]
        for client in clients:
            assert client.ask(MetadataRequest(topics=[]), 12).error_code == 0
            client.close()
        assert "Traceback" not in made.broker.log, made.broker.log


def test_the_audit_file_tells_who_came_in_and_who_changed_what(node: SecuredNode) -> None:
    admin = AdminClient(node.client())
    acl = AclBinding(
        ResourceType.TOPIC,
        "pay\nroll",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result(60)
    with node.log_in(ALICE) as client:
        topic = CreateTopicsRequest.CreatableTopic(
            name=TopicName("forbidden"), num_partitions=1, replication_factor=1
        )
        client.ask(CreateTopicsRequest(topics=[topic]), 5)
    with node.certified("INTERNAL", "admin") as client:
        client.ask(MetadataRequest(topics=[]), 12)
    with node.connect("PASSWORDS", node.context()) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess-7261"), 2)

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (node.folder / "audit.log").read_text().splitlines()]

    def found(**wanted: object) -> bool:
        return any(wanted.items() <= event.items() for event in events() if "changes" not in event)

    until(lambda: found(event="authentication failed", what="authentication"))
    assert found(event="authenticated", principal="User:alice", mechanism="SASL", listener="PASSWORDS")
    assert found(event="authenticated", principal="User:CN=admin", mechanism="TLS")
    assert found(event="denied", principal="User:alice", operation="CREATE", resource="forbidden")
    change = next(event for event in events() if event["event"] == "change requested")
    assert change["principal"] == "User:admin" and change["request"] == "CREATE_ACLS"
    assert change["changes"] == ["ALLOW READ User:alice from * on TOPIC:LITERAL:pay\nroll"]
    text = (node.folder / "audit.log").read_text()
    assert not any(secret in text for secret in (ADMIN[1], ALICE[1], "guess-7261"))


def test_raw_clients_that_are_denied_close_cleanly(node: SecuredNode) -> None:
    with pytest.raises(ConnectionError), RawClient("127.0.0.1", node.ports["PASSWORDS"]) as client:
        client.ask(ApiVersionsRequest(), 0)


@pytest.mark.parametrize("asked", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")])
def test_a_request_where_a_sasl_token_belongs_is_answered_and_ends_the_connection(
    node: SecuredNode, asked: WireRequest[ApiVersionsResponse | SaslHandshakeResponse]
) -> None:
    with node.connect("PASSWORDS", node.context()) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert client.ask(asked, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ConnectionError):
            client.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0x"), 2)
