"""Delegation tokens on a real broker: made by the tool, used to log in, renewed, ended."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.admin.settings import ClusterSettings, SecuritySettings
from ottla.admin.topics import NewTopic, create_topics
from ottla.admin.users import Principal, create_token, describe_tokens, expire_token, renew_token
from ottla.errors import ApiException, ErrorCode
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY = "the-key-of-the-cluster"

pytestmark = pytest.mark.slow


class Tokens:
    """A broker that gives tokens to alice, and everything to admin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, plaintext, controller = free_ports(3)
        config = folder / "server.properties"
        config.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=CLIENTS://127.0.0.1:{port},OPEN://127.0.0.1:{plaintext},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,OPEN:PLAINTEXT
inter.broker.listener.name=OPEN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.clients.plain.sasl.jaas.config={PLAIN} required user_admin="a" user_alice="a" user_bob="b";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
delegation.token.secret.key={KEY}
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
"""
        )
        self.address = ("127.0.0.1", port)
        self.open = ("127.0.0.1", plaintext)
        self.broker = BrokerProcess(folder / "data", config=config, arguments=["--log-level", "info"]).start()

    def cluster(self, user: str, password: str, mechanism: str = "PLAIN", *, token: bool = False) -> Any:
        security = SecuritySettings(
            protocol="SASL_PLAINTEXT", mechanism=mechanism, user=user, password=password, token=token
        )
        return closing(
            Cluster(ClusterSettings(bootstrap=(self.address,), security=security, bootstrap_timeout_s=0.1))
        )


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    made = Tokens(tmp_path_factory.mktemp("tokens"))
    try:
        yield made
        assert made.broker.stop() == 0, made.broker.log
        assert "Traceback" not in made.broker.log, made.broker.log
        assert KEY not in made.broker.log
    finally:
        made.broker.kill()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_its_owner_in_and_its_end_puts_an_end_to_that(tokens: Tokens, mechanism: str) -> None:
    with tokens.cluster("alice", "a") as alice:
        made = create_token(alice, -1, [Principal("User", "bob")])
        secret = base64.b64encode(made.hmac).decode()
        with tokens.cluster(made.token_id, secret, mechanism, token=True) as by_token:
            # The owner's rights count: alice may not create topics.
            done = create_topics(by_token, [NewTopic("t", 1, 1)])
            assert done.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert "Principal = User:alice is Denied operation = CREATE" in tokens.broker.log
            # Who came with a token gets no other, and sees none.
            for refused in (lambda: create_token(by_token, -1), lambda: describe_tokens(by_token)):
                with pytest.raises(ApiException) as error:
                    refused()
                assert error.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        with pytest.raises((ApiException, ConnectionFailed)):
            with tokens.cluster(made.token_id, "wrong", mechanism, token=True) as by_token:
                by_token.any()
        with pytest.raises((ApiException, ConnectionFailed)):
            with tokens.cluster(made.token_id, secret, mechanism) as as_a_user:
                as_a_user.any()
        with tokens.cluster("bob", "b") as bob:
            assert renew_token(bob, made.hmac, -1) >= made.expiry_timestamp_ms
            assert [each.token_id for each in describe_tokens(bob).tokens] == [made.token_id]
            expire_token(bob, made.hmac, -1)
        assert describe_tokens(alice).tokens == []
        with pytest.raises((ApiException, ConnectionFailed)):
            with tokens.cluster(made.token_id, secret, mechanism, token=True) as by_token:
                by_token.any()


def test_a_token_for_somebody_else_needs_a_right(tokens: Tokens) -> None:
    carol = Principal("User", "carol")
    with tokens.cluster("alice", "a") as alice, pytest.raises(ApiException) as error:
        create_token(alice, -1, owner=carol)
    assert error.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    with tokens.cluster("admin", "a") as admin, tokens.cluster("bob", "b") as bob:
        made = create_token(admin, -1, owner=carol)
        assert (made.principal_name, made.token_requester_principal_name) == ("carol", "admin")
        # Others do not see it: bob is no owner, no renewer, and may describe no token.
        assert describe_tokens(bob, [carol]).tokens == []
        assert [each.token_id for each in describe_tokens(admin, [carol]).tokens] == [made.token_id]


def test_nobody_gets_a_token_without_having_said_who_they_are(tokens: Tokens) -> None:
    settings = ClusterSettings(bootstrap=(tokens.open,))
    with closing(Cluster(settings)) as anonymous, pytest.raises(ApiException) as error:
        create_token(anonymous, -1)
    assert error.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_the_tool_makes_shows_and_ends_tokens_and_logs_in_with_one(tokens: Tokens) -> None:
    def tool(config: Path, *arguments: str) -> Any:
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "ottla",
                    "delegation-tokens",
                    "--json",
                    "--command-config",
                    str(config),
                ),
                *("--bootstrap-server", f"127.0.0.1:{tokens.address[1]}", *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    config = tokens.folder / "alice.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="alice" password="a";\n'
    )
    (made,) = tool(config, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert made["owner"] == "User:alice" and made["renewers"] == ["User:bob"]
    assert [each["id"] for each in tool(config, "--describe")] == [made["id"]]
    by_token = tokens.folder / "token.properties"
    by_token.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM} required username="{made["id"]}" password="{made["hmac"]}" tokenauth="true";\n'
    )
    assert "Delegation Token requests are not allowed" in tool(by_token, "--describe")
    assert tool(config, "--expire", "--expiry-time-period", "-1", "--hmac", made["hmac"])["expiry_ms"]
    assert made["hmac"] not in tokens.broker.log
