"""Logins that change while the broker runs: users of PLAIN by kafka-configs, passwords of SCRAM by a safe way only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.admin.cluster import Cluster
from ottla.admin.configs import alter_configs
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException, ErrorCode
from ottla.testing.ports import free_ports
from ottla.testing.raw_client import RawClient
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from security.secured_node import ADMIN, ALICE, PLAIN, SecuredNode

pytestmark = pytest.mark.slow

KEY = "listener.name.passwords.plain.sasl.jaas.config"
NODE = (ConfigResourceType.BROKER, "1")
DAVE = ("dave", "dave-secret-77aa")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("logins"))
    with made.broker:
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log
        assert DAVE[1] not in made.broker.log


@pytest.fixture
def cluster(node: SecuredNode) -> Iterator[Cluster]:
    settings = node.client()
    made = Cluster(writer_settings(settings.pop("bootstrap.servers"), settings))
    yield made
    made.close()


def users(*known: tuple[str, str]) -> str:
    return f"{PLAIN} required " + " ".join(f'user_{name}="{password}"' for name, password in known) + ";"


def is_let_in(node: SecuredNode, user: tuple[str, str]) -> bool:
    client = node.connect("PASSWORDS", node.context())
    with client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = "\0".join(("", *user)).encode()
        return client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0


def test_users_of_plain_come_and_go_and_those_who_are_in_stay(node: SecuredNode, cluster: Cluster) -> None:
    alice = node.log_in(ALICE)
    assert not is_let_in(node, DAVE)
    alter_configs(cluster, *NODE, added={KEY: users(ADMIN, DAVE)})
    while not is_let_in(node, DAVE):
        pass
    assert not is_let_in(node, ALICE)
    # An open session is not ended by it, as in Kafka.
    assert alice.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    alice.close()
    alter_configs(cluster, *NODE, deleted=[KEY])
    while not is_let_in(node, ALICE):
        pass
    assert not is_let_in(node, DAVE)


@pytest.mark.parametrize(
    "text",
    [
        "com.sun.security.auth.module.JndiLoginModule required;",
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        users(ADMIN) + users(ADMIN),
        "not a login",
    ],
)
def test_a_login_that_cannot_work_is_refused_and_changes_nothing(
    node: SecuredNode, cluster: Cluster, text: str
) -> None:
    with pytest.raises(ApiException) as refused:
        alter_configs(cluster, *NODE, added={KEY: text})
    assert refused.value.code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert is_let_in(node, ALICE)


def test_strict_takes_passwords_over_tls_only(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path)
    (port,) = free_ports(1)
    addresses = ",".join(f"{name}://127.0.0.1:{each}" for name, each in node.ports.items())
    kinds = "PASSWORDS:SASL_SSL,CERTIFICATES:SSL,INTERNAL:SSL,CONTROLLER:SSL,CLEAR:SASL_PLAINTEXT"
    node.config.write_text(
        node.properties(
            {
                "listeners": f"{addresses},CLEAR://127.0.0.1:{port}",
                "listener.security.protocol.map": kinds,
                "listener.name.clear.plain.sasl.jaas.config": users(ADMIN),
                "ottla.security.profile": "strict",
                "ottla.node.identity": "required",
            }
        )
    )
    node.config.chmod(0o600)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="erin", mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=b"x" * 32
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    with node.broker:
        with RawClient("127.0.0.1", port) as client:
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.ask(SaslAuthenticateRequest(auth_bytes="\0".join(("", *ADMIN)).encode()), 2)
            (result,) = client.ask(request, 0).results
        assert result.error_code == ErrorCode.POLICY_VIOLATION
        assert "listener CLEAR, which has no TLS" in (result.error_message or "")
        with node.log_in(ADMIN) as client:
            (result,) = client.ask(request, 0).results
        assert result.error_code == 0
        assert AdminClient(node.client()).list_topics(timeout=60) is not None
