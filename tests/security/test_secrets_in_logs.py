"""No secret is in a log at TRACE, in an answer, or in the audit file: each is searched for, in every form it takes.

CVE-2026-33558 is of this class.
"""

from __future__ import annotations

import base64
import os
import signal
import time
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.testing.certificates import write_pkcs12
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from security.secured_node import ADMIN, ALICE, SecuredNode

pytestmark = pytest.mark.slow

STORE, DYNAMIC, SCRAM, GUESS = "store-7f21-pass", "dynamic-9e3c-pass", "scram-41aa-pass", "guess-c0de-pass"
SALT = b"salt-of-carol-77"


def forms(secret: bytes) -> set[bytes]:
    """A secret as it may be written."""
    return {secret, base64.b64encode(secret), secret.hex().encode(), repr(secret)[2:-1].encode()}


def secured(folder: Path) -> SecuredNode:
    made = SecuredNode(
        folder,
        {
            "ottla.audit.log.file": folder / "audit.log",
            "ottla.ssl.reload.interval.ms": 100,
            "ssl.keystore.password": STORE,
            "delegation.token.secret.key": "token-5511-secret-key",
        },
    )
    write_pkcs12(made.authority.issue("node1", uris=("ottla:node:1",)), folder / "node1.p12", STORE)
    text = made.config.read_text().replace(str(made.keystore), str(folder / "node1.p12"))
    made.config.write_text(text.replace("ssl.keystore.type=PEM", "ssl.keystore.type=PKCS12"))
    return made


def alter(client: Any, key: str, value: str) -> Any:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=key, config_operation=0, value=value)
    resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    return client.ask(request(resources=[resource]), 1)


def describe(client: Any) -> Any:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return client.ask(request(resources=[resource], include_synonyms=True, include_documentation=True), 4)


def test_every_security_api_leaves_no_secret_behind(tmp_path: Path) -> None:
    made = secured(tmp_path)
    answers: list[Any] = []
    salted = pbkdf2_hmac("sha512", SCRAM.encode(), SALT, 4096)
    hmacs: list[bytes] = []
    with made.broker:
        with made.log_in(ADMIN) as client:
            for key in (
                "listener.name.passwords.ssl.keystore.password",
                "ssl.key.password",
                "a.plugin.password",
            ):
                answers.append(alter(client, key, DYNAMIC))
            plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
            jaas = f'{plain} required user_admin="{ADMIN[1]}" user_alice="{DYNAMIC}";'
            answers.append(alter(client, "listener.name.passwords.plain.sasl.jaas.config", jaas))
            users = m.AlterUserScramCredentialsRequest
            credential = users.ScramCredentialUpsertion(
                name="dave", mechanism=2, iterations=4096, salt=SALT, salted_password=salted
            )
            answers.append(client.ask(users(upsertions=[credential]), 0))
            answers.append(client.ask(m.DescribeUserScramCredentialsRequest(users=None), 0))
            answers.append(describe(client))
            served = {api.api_key for api in client.ask(m.ApiVersionsRequest(), 0).api_keys}
            if ApiKey.CREATE_DELEGATION_TOKEN in served:
                token = client.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
                hmacs = [bytes(token.hmac)] if token.hmac else []
        admin = AdminClient(made.client())
        user = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SCRAM.encode(), SALT
        )
        admin.alter_user_scram_credentials([user])["carol"].result(60)
        for name, password in (("alice", GUESS), ("nobody", GUESS)):
            with made.connect("PASSWORDS", made.context()) as client:
                client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
                login = f"\0{name}\0{password}".encode()
                answers.append(client.ask(m.SaslAuthenticateRequest(auth_bytes=login), 2))
        (tmp_path / "node1.p12").write_bytes(b"damaged")
        os.kill(made.broker.pid, signal.SIGHUP)
        deadline = time.monotonic() + 60
        while "stay in force" not in made.broker.log:
            assert time.monotonic() < deadline
    secrets = {ADMIN[1], ALICE[1], STORE, DYNAMIC, SCRAM, GUESS, "token-5511-secret-key"}
    wanted = set[bytes]().union(*(forms(secret.encode()) for secret in secrets), forms(salted))
    written = {
        "the log": made.broker.log.encode(),
        "the audit file": (tmp_path / "audit.log").read_bytes(),
        "an answer": repr(answers).encode(),
    }
    for hmac in hmacs:
        assert not any(form in written["the log"] + written["the audit file"] for form in forms(hmac))
    found = [(where, form) for where, text in written.items() for form in wanted if form in text]
    assert not found
