"""Identity tokens: whom they stand for, and which are refused."""

from __future__ import annotations

import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.console.security.oidc import Oidc
from ottla.console.security.roles import Forbidden, Role
from ottla.errors import ApiException

KEY = rsa.generate_private_key(65537, 2048)
ISSUER = "https://login.example.org"
ROLES = {"operator": Role("operator", frozenset({"see"}))}


@pytest.fixture
def oidc():
    fields = {"issuer": ISSUER, "client_id": "ottla", "roles": {"ops": ["operator"]}}
    return Oidc.of(fields, ROLES, read_only=False)


def keys():
    return {"keys": [{**jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k"}]}


def token(key=KEY, algorithm="RS256", **changes):
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "ottla", "sub": "1", "iat": now, "exp": now + 60, "nonce": "n", **changes}
    return jwt.encode(claims, key, algorithm, headers={"kid": "k"})


def test_a_good_token(oidc):
    claims = oidc._verify(token(groups=["ops", "others"], email="ann@example.org"), keys(), "n", ISSUER)
    found = oidc.principal(claims)
    assert (found.name, found.roles) == ("ann@example.org", (ROLES["operator"],))


@pytest.mark.parametrize(
    "bad",
    [
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"nonce": "another sign-in"},
        {"key": rsa.generate_private_key(65537, 2048)},
        {"key": "a shared secret that is long enough for it", "algorithm": "HS256"},
    ],
    ids=["audience", "issuer", "expired", "nonce", "key", "algorithm"],
)
def test_a_token_that_is_refused(oidc, bad):
    with pytest.raises(Forbidden):
        oidc._verify(token(**bad), keys(), "n", ISSUER)


def test_nobody_comes_in_without_a_role(oidc):
    with pytest.raises(Forbidden, match="has no role here"):
        oidc.principal({"sub": "1", "groups": ["strangers"]})


def test_a_state_that_was_never_given_leads_nowhere(oidc):
    with pytest.raises(Forbidden, match="too old"):
        oidc.finish("guessed", "code")


@pytest.mark.parametrize("issuer", ["http://login.example.org", "file:///etc/passwd", "login.example.org"])
def test_an_issuer_must_be_https(issuer):
    with pytest.raises(ApiException, match="https"):
        Oidc.of({"issuer": issuer, "client_id": "x"}, ROLES, read_only=False)


def test_a_role_that_is_not_there_is_named():
    with pytest.raises(ApiException, match="no role 'boss'"):
        Oidc.of({"issuer": ISSUER, "client_id": "x", "roles": {"ops": ["boss"]}}, ROLES, read_only=False)
