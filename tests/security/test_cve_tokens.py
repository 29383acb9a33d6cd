"""Attacks on logins with bearer tokens, each named after its class."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import check_dynamic
from ottla.config.errors import ConfigError
from ottla.security.listener_security import ListenerSecurity
from ottla.security.sasl.jwt_validation import InvalidToken, TokenValidator
from token_issuer import AUDIENCE, ISSUER, TokenIssuer

URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    made = TokenIssuer()
    yield made
    made.close()


def judge(settings: dict[str, str]) -> TokenValidator:
    """The judge of tokens of a listener with these settings."""
    config = BrokerConfig.single_node(
        {
            "log.dirs": "data",
            "listeners": "SASL_PLAINTEXT://localhost:9093",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULE};",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            **settings,
        }
    )
    found = ListenerSecurity(config, config.broker_listeners[0])._tokens
    assert found is not None
    return found


@pytest.fixture
def keys(issuer: TokenIssuer, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "keys.json").write_bytes(issuer.jwks())
    return {URL_KEY: f"file://{tmp_path}/keys.json"}


def with_header(token: str, header: dict[str, str], *, signed: bool = True) -> str:
    _, payload, signature = token.split(".")
    text = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{text}.{payload}.{signature if signed else ''}"


def test_addresses_that_a_token_or_a_client_brings(issuer: TokenIssuer, keys: dict[str, str]) -> None:
    """CVE-2025-27817: no address but that of the file is asked, and no client can change it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/keys"
        believes = judge(keys)
        for name in ("jku", "x5u"):
            header = {"alg": "RS256", "kid": "first", name: url}
            with pytest.raises(InvalidToken):
                believes.validate(with_header(issuer.token("alice"), header), time.time())
        for key in (URL_KEY, "sasl.oauthbearer.token.endpoint.url"):
            for name in (key, f"listener.name.sasl_plaintext.{key}"):
                for value in (url, "file:///etc/passwd"):
                    with pytest.raises(ConfigError):
                        check_dynamic(name, value, per_broker=True)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_judge_that_believes_what_nobody_signed(issuer: TokenIssuer, keys: dict[str, str]) -> None:
    """CVE-2026-33557: a listener that names no judge has one that verifies, and no other can be named."""
    believes = judge(keys)
    token = issuer.token("alice")
    assert believes.validate(token, time.time()).subject == "alice"
    unsigned = with_header(token, {"alg": "none"}, signed=False)
    for forged in (unsigned, token[:-8] + "AAAAAAAA", issuer.token("alice", aud="another")):
        with pytest.raises(InvalidToken):
            believes.validate(forged, time.time())
    for name in ("com.example.Anything", "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"):
        key = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
        with pytest.raises(ConfigError):
            judge({**keys, key: name})


def test_signatures_that_are_skipped_without_keys(keys: dict[str, str]) -> None:
    """CVE-2026-110985: without the keys of the issuer nothing starts, and nobody takes them away later."""
    with pytest.raises(ConfigError, match="Missing configuration"):
        judge({})
    with pytest.raises(ConfigError, match="Missing configuration"):
        judge({URL_KEY: " "})
    with pytest.raises(ConfigError):
        check_dynamic(URL_KEY, None, per_broker=True)
    assert judge(keys)
