"""OAUTHBEARER on the server's side: which tokens are believed, where keys come from, and the exchange itself."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, SecurityProtocol
from ottla.credentials.errors import CredentialsError
from ottla.security.sasl.jwks import UNKNOWN_KEY_PAUSE_S, KeySet, parse_keys
from ottla.security.sasl.jwt_validation import ClaimRules, InvalidToken, JwksValidator, UnsecuredValidator
from ottla.security.sasl.mechanism import SaslFailed
from ottla.security.sasl.oauth_settings import token_validator
from ottla.security.sasl.oauthbearer import OAuthBearerServer
from token_issuer import AUDIENCE, ISSUER, TokenIssuer

RULES = ClaimRules(ISSUER, frozenset({AUDIENCE, "other"}))
LISTENER = Listener("CLIENTS", "", 9092, SecurityProtocol.SASL_SSL)


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    made = TokenIssuer()
    yield made
    made.close()


@pytest.fixture
def judge(issuer: TokenIssuer) -> Callable[[str], Any]:
    validator = JwksValidator(parse_keys(issuer.jwks()).get, RULES)
    return lambda token: validator.validate(token, time.time())


def b64(document: object) -> str:
    text = document if isinstance(document, str) else json.dumps(document)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


# -- tokens


def test_a_good_token(issuer: TokenIssuer, judge: Callable[[str], Any]) -> None:
    end = int(time.time()) + 60
    found = judge(issuer.token("alice", exp=end, scope="read write", aud=["x", AUDIENCE]))
    assert found == ("alice", end * 1000, ("read", "write"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": None}, "no exp"),
        ({"iat": None}, "no exp or no iat"),
        ({"exp": 1000}, "ended"),
        ({"exp": 1e12}, "no whole number"),
        ({"exp": float("nan")}, "no"),
        ({"exp": "9999999999"}, "no whole number"),
        ({"exp": True}, "no whole number"),
        ({"iat": 99999999999}, "in the future"),
        ({"nbf": 99999999999}, "nbf"),
        ({"iss": "https://issuer.test/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": "elsewhere"}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": None}, "claim sub"),
        ({"sub": ["alice"]}, "claim sub"),
        ({"sub": " "}, "claim sub"),
        ({"sub": "x" * 2000}, "claim sub"),
    ],
)
def test_claims_that_are_not_believed(
    issuer: TokenIssuer, judge: Callable[[str], Any], changes: dict[str, Any], why: str
) -> None:
    # PyJWT refuses to make some of them: they are signed by hand.
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 60} | changes
    payload = json.dumps({key: value for key, value in claims.items() if value is not None}).encode()
    key = issuer._keys["first"]
    token = jwt.PyJWS().encode(payload, key, "RS256", headers={"kid": "first"})
    with pytest.raises(InvalidToken, match=why):
        judge(token)


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "crit"])
def test_a_header_that_brings_its_own_key(
    issuer: TokenIssuer, judge: Callable[[str], Any], name: str
) -> None:
    _, payload, signature = issuer.token("alice").split(".")
    header = b64({"alg": "RS256", "kid": "first", name: ["https://evil.test/keys"]})
    with pytest.raises(InvalidToken, match=name):
        judge(".".join([header, payload, signature]))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "none", "kid": "first"}, "algorithm"),
        ({"alg": "HS256", "kid": "first"}, "algorithm"),
        ({"alg": ["RS256"], "kid": "first"}, "algorithm"),
        ({"alg": "RS512", "kid": "first"}, "not for RS512"),
        ({"alg": "ES256", "kid": "first"}, "not for ES256"),
        ({"alg": "RS256"}, "no kid"),
        ({"alg": "RS256", "kid": 1}, "no kid"),
        ({"alg": "RS256", "kid": "other"}, "no key other"),
        ({"alg": "RS256", "kid": "first", "typ": "JOSE"}, "type"),
        ('{"alg":"RS256","kid":"first","kid":"second"}', "name twice"),
        ("[]", "no JSON object"),
        ("{", "no JSON"),
    ],
)
def test_headers_that_are_not_believed(
    issuer: TokenIssuer, judge: Callable[[str], Any], header: object, why: str
) -> None:
    _, payload, signature = issuer.token("alice").split(".")
    with pytest.raises(InvalidToken, match=why):
        judge(".".join([b64(header), payload, signature]))


def test_texts_that_are_no_tokens(issuer: TokenIssuer, judge: Callable[[str], Any]) -> None:
    token = issuer.token("alice")
    header, payload, signature = token.split(".")
    for text in (
        "",
        "a.b",
        "a.b.c.d",
        "!.b.c",
        "x" * 20_000,
        f"{header}.{payload}.",
        f"{header}.{b64('{')}.{signature}",
    ):
        with pytest.raises(InvalidToken):
            judge(text)
    changed = b64({"iss": ISSUER, "aud": AUDIENCE, "sub": "admin", "iat": 1, "exp": 1 << 33})
    with pytest.raises(InvalidToken, match="signature"):
        judge(f"{header}.{changed}.{signature}")


def test_a_public_key_is_no_shared_secret(issuer: TokenIssuer, judge: Callable[[str], Any]) -> None:
    """The old attack on libraries that let the token choose: HS256 with the public key as secret."""
    public = issuer._keys["first"].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64({'sub': 'admin'})}"
    signature = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), "sha256")).decode().rstrip("=")
    with pytest.raises(InvalidToken, match="algorithm"):
        judge(f"{signed}.{signature}")


def test_unsecured_tokens() -> None:
    judge = UnsecuredValidator(ClaimRules(None, None))
    payload = b64({"sub": "alice", "iat": 1, "exp": 1 << 33})
    assert judge.validate(f"{b64({'alg': 'none'})}.{payload}.", 100).subject == "alice"
    with pytest.raises(InvalidToken):
        judge.validate(f"{b64({'alg': 'RS256'})}.{payload}.", 100)


# -- keys


def test_keys_that_cannot_verify_are_left_out() -> None:
    rsa_key = jwt.algorithms.RSAAlgorithm.to_jwk(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key(), as_dict=True
    )
    ec_key = jwt.algorithms.ECAlgorithm.to_jwk(
        ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True
    )
    keys = [
        {**rsa_key, "kid": "any-rsa"},
        {**ec_key, "kid": "ec"},
        {**rsa_key, "kid": "encrypts", "use": "enc"},
        {**rsa_key, "kid": "signs", "key_ops": ["sign"]},
        {**rsa_key, "kid": "wrong", "alg": "ES256"},
        {**rsa_key},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        "nothing",
    ]
    found = parse_keys(json.dumps({"keys": keys}).encode())
    assert {kid: key.algorithms for kid, key in found.items()} == {
        "any-rsa": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
        "ec": {"ES384"},
    }


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [{"kty": "oct", "kid": "x", "k": "eA"}]}'],
)
def test_sets_without_a_usable_key(text: bytes) -> None:
    with pytest.raises(CredentialsError):
        parse_keys(text)


class Renewals:
    """Runs renewals when the test says, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waiting: list[Callable[[], None]] = []

    def run(self) -> None:
        for work in self.waiting:
            work()
        self.waiting.clear()


def test_unknown_keys_make_few_requests(issuer: TokenIssuer) -> None:
    renewals = Renewals()
    keys = KeySet(f"{issuer.url}/jwks", 3600, lambda: renewals.now, run=renewals.waiting.append)
    keys.start()
    assert keys.find("first") is None
    renewals.run()
    assert keys.find("first") is not None
    before = issuer.jwks_asked
    for number in range(100):
        keys.find(f"storm-{number}")
    renewals.run()
    assert issuer.jwks_asked == before
    renewals.now += UNKNOWN_KEY_PAUSE_S
    for number in range(100):
        keys.find(f"storm-{number}")
    renewals.run()
    assert issuer.jwks_asked == before + 1


def test_old_keys_stay_while_the_issuer_is_away(caplog: pytest.LogCaptureFixture) -> None:
    away = TokenIssuer()
    renewals = Renewals()
    keys = KeySet(f"{away.url}/jwks", 60, lambda: renewals.now, run=renewals.waiting.append)
    keys.start()
    renewals.run()
    away.close()
    renewals.now += 61
    assert keys.find("first") is not None
    renewals.run()
    assert "the old ones stay" in caplog.text
    assert keys.find("first") is not None
    assert not renewals.waiting


def test_a_file_is_read_again_when_it_changes(issuer: TokenIssuer, tmp_path: Path) -> None:
    file, renewals = tmp_path / "keys.json", Renewals()
    file.write_bytes(issuer.jwks())
    keys = KeySet(f"file://{file}", 3600, lambda: renewals.now, run=renewals.waiting.append)
    keys.start()
    assert keys.find("first") is not None
    assert not renewals.waiting
    other = TokenIssuer()
    other.new_key("second")
    other.close()
    file.write_bytes(other.jwks())
    keys.find("second")
    renewals.run()
    assert keys.find("second") is not None
    file.write_text("half a")
    keys.find("second")
    renewals.run()
    assert keys.find("second") is not None
    assert not renewals.waiting


# -- the exchange


def message(token: str, *, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


def server(issuer: TokenIssuer) -> OAuthBearerServer:
    return OAuthBearerServer(JwksValidator(parse_keys(issuer.jwks()).get, RULES), time.time)


def test_a_token_is_a_principal_until_it_ends(issuer: TokenIssuer) -> None:
    end = int(time.time()) + 100
    exchange = server(issuer)
    first = message(issuer.token("alice", exp=end), header="n,a=alice,", more="traceId=7\x01")
    assert exchange.evaluate(first) == b""
    assert exchange.complete
    assert str(exchange.principal) == "User:alice"
    assert exchange.expires_at_ms == end * 1000


def test_a_bad_token_is_answered_and_then_fails(issuer: TokenIssuer) -> None:
    exchange = server(issuer)
    assert exchange.evaluate(message(issuer.token("alice", aud="x"))) == b'{"status":"invalid_token"}'
    assert not exchange.complete
    with pytest.raises(SaslFailed) as failed:
        exchange.evaluate(b"\x01")
    assert failed.value.message == '{"status":"invalid_token"}'
    assert "audience" in str(failed.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a.\xff.c\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 30_000 + b"\x01\x01",
    ],
)
def test_messages_that_are_not_well_formed(issuer: TokenIssuer, text: bytes) -> None:
    with pytest.raises(SaslFailed) as failed:
        server(issuer).evaluate(text)
    assert failed.value.message is None


def test_nobody_poses_as_somebody_else(issuer: TokenIssuer) -> None:
    with pytest.raises(SaslFailed, match="different from the token's principal"):
        server(issuer).evaluate(message(issuer.token("alice"), header="n,a=admin,"))


# -- settings

GOOD = {
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
}
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    + "OAuthBearerUnsecuredValidatorCallbackHandler"
)


@pytest.mark.parametrize(
    ("missing", "opt_out"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", None),
        ("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
        ("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience"),
    ],
)
def test_what_would_let_strangers_in_is_refused(
    issuer: TokenIssuer, tmp_path: Path, missing: str, opt_out: str | None
) -> None:
    (tmp_path / "keys.json").write_bytes(issuer.jwks())
    keys = {**GOOD, "sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys.json"}
    assert token_validator(LISTENER, keys, {}).validate(issuer.token("alice"), time.time()).subject == "alice"
    del keys[missing]
    with pytest.raises(ConfigError, match="Missing configuration") as refused:
        token_validator(LISTENER, keys, {})
    assert refused.value.key == missing
    if opt_out is not None:
        claim = "iss" if missing.endswith("issuer") else "aud"
        token = issuer.token("alice", **{claim: "anything"})
        assert token_validator(LISTENER, {**keys, opt_out: "true"}, {}).validate(token, time.time())


@pytest.mark.parametrize(
    "url",
    ["http://idp.example/keys", "ftp://x/y", "file://host/x", "keys.json", "https://u:p@x/", "file:///none"],
)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        token_validator(LISTENER, {**GOOD, "sasl.oauthbearer.jwks.endpoint.url": url}, {})


def test_unsecured_tokens_only_on_the_loopback_interface() -> None:
    keys = {"oauthbearer.sasl.server.callback.handler.class": UNSECURED}
    with pytest.raises(ConfigError, match="loopback"):
        token_validator(LISTENER, keys, {})
    local = Listener("CLIENTS", "localhost", 9092, SecurityProtocol.SASL_PLAINTEXT)
    assert isinstance(token_validator(local, keys, {}), UnsecuredValidator)
    with pytest.raises(ConfigError, match="handler"):
        token_validator(local, {"oauthbearer.sasl.server.callback.handler.class": "com.example.X"}, {})
