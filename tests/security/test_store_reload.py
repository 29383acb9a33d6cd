"""New certificates without a restart: by a config, by a changed file, by SIGHUP; and what is refused."""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509

from ottla.credentials.stores import Identity
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.wire.messages import MetadataRequest
from security.secured_node import ADMIN, SecuredNode

pytestmark = pytest.mark.slow

LOCATION = "listener.name.passwords.ssl.keystore.location"
PATIENCE_S = 60.0


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SecuredNode]:
    """A node that looks at its files every `param` milliseconds, or never."""
    made = SecuredNode(tmp_path, {"ottla.ssl.reload.interval.ms": getattr(request, "param", 0)})
    with made.broker:
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log


def shown(node: SecuredNode, listener: str = "PASSWORDS") -> int:
    """The serial number of the certificate that a listener shows."""
    context = node.context("anyone")
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with node.connect(listener, context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        der = client.socket.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"


def renewed(node: SecuredNode) -> Identity:
    return node.authority.issue("node1", uris=("ottla:node:1",))


def set_location(node: SecuredNode, path: Path) -> None:
    entry = ConfigEntry(LOCATION, str(path), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(node.client())
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_kafka_configs_reload_an_unchanged_path(node: SecuredNode) -> None:
    """Only the named listener reloads; a connection that is open stays open."""
    with node.log_in(ADMIN) as before:
        new = write_and_identify(renewed(node), node.keystore)
        set_location(node, node.keystore)
        until(lambda: shown(node) == new)
        assert before.ask(MetadataRequest(topics=[]), 12).error_code == 0


def write_and_identify(identity: Identity, path: Path) -> int:
    # As an operator would: a reader sees the old file or the new one.
    write_pem(identity, path.with_suffix(".new")).rename(path)
    return identity.certificate.serial_number


@pytest.mark.parametrize("node", [100], indirect=True)
def test_a_changed_file_is_seen_on_every_listener(node: SecuredNode) -> None:
    new = write_and_identify(renewed(node), node.keystore)
    for listener in node.ports:
        until(lambda listener=listener: shown(node, listener) == new)  # type: ignore[misc]


def test_sighup_reloads(node: SecuredNode) -> None:
    new = write_and_identify(renewed(node), node.keystore)
    os.kill(node.broker.pid, signal.SIGHUP)
    until(lambda: shown(node) == new)


def refused(node: SecuredNode, path: Path) -> str:
    with pytest.raises(KafkaException) as error:
        set_location(node, path)
    assert error.value.args[0].name() == "INVALID_REQUEST"
    return str(error.value.args[0].str())


def test_another_subject_or_fewer_names_are_refused_as_kafka_refuses_them(node: SecuredNode) -> None:
    old = shown(node)
    subject = write_pem(node.authority.issue("node2", uris=("ottla:node:1",)), node.folder / "2.pem")
    assert "ssl.allow.dn.changes=true" in refused(node, subject)
    names = write_pem(node.authority.issue("node1"), node.folder / "3.pem")
    assert "lacks the subject alternative names ottla:node:1" in refused(node, names)
    assert "No such file" in refused(node, node.folder / "no-file.pem")
    broken = node.folder / "broken.pem"
    broken.write_bytes(node.keystore.read_bytes()[:300])
    refused(node, broken)
    assert shown(node) == old
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient(node.client())
    described = admin.describe_configs([resource])[resource].result(60)
    assert LOCATION not in described


@pytest.mark.parametrize("node", [100], indirect=True)
def test_a_certificate_that_other_nodes_do_not_trust_is_refused_once(node: SecuredNode) -> None:
    """An authority that nobody knows, then half a file: each one ERROR, and the old certificate stays."""
    old = shown(node, "INTERNAL")
    stranger = CertificateAuthority.create("stranger")
    write_and_identify(stranger.issue("node1", uris=("ottla:node:1",)), node.keystore)
    until(lambda: "does not trust itself" in node.broker.log)
    node.keystore.write_bytes(b"")
    until(lambda: "holds no private key" in node.broker.log)
    assert shown(node, "INTERNAL") == old
    sentence = "The key store of listener INTERNAL cannot be changed: a node with the new stores"
    assert node.broker.log.count(sentence) == 1
    new = write_and_identify(renewed(node), node.keystore)
    until(lambda: shown(node, "INTERNAL") == new)
