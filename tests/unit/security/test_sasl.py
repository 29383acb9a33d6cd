"""SASL on the server's side: mechanisms by the RFCs' own examples, the exchange by its table of states."""

from __future__ import annotations

import base64
import hashlib

import pytest

from ottla.credentials.scram_keys import derive_keys
from ottla.credentials.secret import Secret
from ottla.metadata.image import ScramCredential
from ottla.security.principal import Principal, user
from ottla.security.sasl.exchange import IllegalState, SaslExchange, State, UnsupportedMechanism
from ottla.security.sasl.mechanism import SaslFailed
from ottla.security.sasl.plain import PlainServer, users_of
from ottla.security.sasl.scram import ScramServer, TokenCredential

USERS = users_of({"user_alice": "secret", "user_bob": "b", "username": "ignored"})
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KEYS = derive_keys("sha256", hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096))
PENCIL = ScramCredential(SALT, KEYS.stored_key, KEYS.server_key, 4096)
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def scram(nonce=SERVER_NONCE, find_token=None):
    return ScramServer("SCRAM-SHA-256", {"user": PENCIL}.get, find_token, b"node", nonce)


def proof(server_first: bytes, bare: str, password: str, header: str = "n,,", nonce=None) -> str:
    """The client's final message, from RFC 5802 alone."""
    words = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(words["s"]), int(words["i"]))
    import hmac

    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    unproven = f"c={base64.b64encode(header.encode()).decode()},r={nonce or words['r']}"
    said = f"{bare},{server_first.decode()},{unproven}".encode()
    signature = hmac.digest(stored, said, "sha256")
    return f"{unproven},p={base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()}"


def test_plain_knows_the_users_of_its_jaas_entry():
    server = PlainServer(USERS)
    assert server.evaluate(b"\0alice\0secret") == b""
    assert server.complete
    assert str(server.principal) == "User:alice"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_refuses_with_kafkas_sentences(token, message):
    server = PlainServer(USERS)
    with pytest.raises(SaslFailed) as failed:
        server.evaluate(token)
    assert failed.value.message == message
    assert not server.complete


def test_scram_by_the_example_of_rfc_7677():
    server = scram()
    first = server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert first.decode() == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.evaluate(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.complete
    assert server.principal == user("user")


def test_an_unknown_user_gets_a_challenge_too_and_always_the_same():
    first = [scram().evaluate(f"n,,n=nobody,r={CLIENT_NONCE}".encode()) for _ in range(2)]
    assert first[0] == first[1]
    server = scram()
    challenge = server.evaluate(f"n,,n=nobody,r={CLIENT_NONCE}".encode())
    with pytest.raises(SaslFailed) as failed:
        server.evaluate(proof(challenge, f"n=nobody,r={CLIENT_NONCE}", "pencil").encode())
    assert failed.value.message is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=\xc3\xa9",
        b"n,,n=" + b"u" * 2000 + b",r=abc",
    ],
)
def test_scram_refuses_a_bad_first_message(first):
    with pytest.raises(SaslFailed) as failed:
        scram().evaluate(first)
    assert failed.value.message is None


def test_scram_refuses_the_authorization_id_of_somebody_else():
    with pytest.raises(SaslFailed, match="different from username"):
        scram().evaluate(b"n,a=admin,n=user,r=abc")


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(SERVER_NONCE, "X" * len(SERVER_NONCE)),
        lambda final: final.replace("c=biws", "c=eSws"),
        lambda final: final.replace("p=", "p=AAAA"),
        lambda final: final.split(",p=")[0],
        lambda final: final.split(",p=")[0] + ",p=" + base64.b64encode(bytes(32)).decode(),
    ],
)
def test_scram_refuses_a_changed_final_message(change):
    server = scram()
    challenge = server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode())
    final = proof(challenge, f"n=user,r={CLIENT_NONCE}", "pencil")
    with pytest.raises(SaslFailed) as failed:
        server.evaluate(change(final).encode())
    assert failed.value.message is None
    assert not server.complete


def test_scram_refuses_a_proof_for_another_nonce():
    """The client knows the password, and its proof fits what it says; but the nonce is not the one it was given."""
    server = scram()
    challenge = server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode())
    final = proof(challenge, f"n=user,r={CLIENT_NONCE}", "pencil", nonce="of-an-earlier-exchange")
    with pytest.raises(SaslFailed):
        server.evaluate(final.encode())
    assert not server.complete


def test_a_delegation_token_speaks_for_its_owner():
    tokens = {"token-1": TokenCredential(user("alice"), 5_000, PENCIL)}
    server = scram(find_token=tokens.get)
    bare = f"n=token-1,r={CLIENT_NONCE},tokenauth=true"
    challenge = server.evaluate(f"n,,{bare}".encode())
    server.evaluate(proof(challenge, bare, "pencil").encode())
    assert server.principal == Principal("User", "alice", token_authenticated=True)
    assert server.expires_at_ms == 5_000


def exchange(max_reauth_ms=0):
    servers = {"PLAIN": lambda: PlainServer(USERS), "SCRAM-SHA-256": scram}
    return SaslExchange(servers, lambda mechanism: max_reauth_ms)


def ready(max_reauth_ms=0, at=0.0):
    made = exchange(max_reauth_ms)
    made.versions_answered()
    made.handshake("PLAIN", 1)
    assert made.token(b"\0alice\0secret", at, 0) == (b"", max_reauth_ms)
    return made


def test_the_way_in():
    made = ready()
    assert made.state is State.READY
    assert str(made.principal) == "User:alice"
    assert not made.expired(1e9)


def test_what_does_not_fit_the_state_closes_the_connection():
    made = exchange()
    with pytest.raises(IllegalState):
        made.token(b"\0alice\0secret", 0.0, 0)
    made.versions_answered()
    with pytest.raises(IllegalState):
        made.versions_answered()
    made.handshake("PLAIN", 1)
    with pytest.raises(IllegalState):
        made.handshake("PLAIN", 1)
    with pytest.raises(IllegalState):
        made.versions_answered()


def test_an_unknown_mechanism_is_refused():
    made = exchange()
    with pytest.raises(UnsupportedMechanism):
        made.handshake("GSSAPI", 1)
    assert made.state is State.FAILED


def test_the_general_sentence_does_not_say_what_was_wrong():
    made = exchange()
    made.handshake("SCRAM-SHA-256", 1)
    challenge, _ = made.token(f"n,,n=user,r={CLIENT_NONCE}".encode(), 0.0, 0)
    with pytest.raises(SaslFailed) as failed:
        made.token(proof(challenge, f"n=user,r={CLIENT_NONCE}", "wrong").encode(), 0.0, 0)
    assert failed.value.message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert made.state is State.FAILED


def test_a_session_with_an_end_can_be_renewed():
    made = ready(max_reauth_ms=60_000)
    assert made.expired(60.0)
    assert not made.expired(59.9)
    assert not made.may_reauthenticate(0.5)
    assert made.may_reauthenticate(50.0)
    made.handshake("PLAIN", 1)
    made.token(b"\0alice\0secret", 50.0, 0)
    assert not made.expired(100.0)
    assert made.expired(110.0)


def test_a_session_without_an_end_cannot():
    assert not ready().may_reauthenticate(100.0)


def test_re_authentication_keeps_principal_and_mechanism():
    made = ready(max_reauth_ms=60_000)
    made.handshake("PLAIN", 1)
    with pytest.raises(SaslFailed, match=r"re-authentication from User\.alice: User\.bob"):
        made.token(b"\0bob\0b", 10.0, 0)
    made = ready(max_reauth_ms=60_000)
    made.handshake("SCRAM-SHA-256", 1)
    assert made.state is State.BAD_MECHANISM
    with pytest.raises(IllegalState):
        made.token(b"", 10.0, 0)


def test_secrets_do_not_show_in_the_mechanisms():
    assert "secret" not in repr(PlainServer(USERS)) + repr(USERS)
    assert PENCIL.stored_key.hex() not in repr(PENCIL)
    assert "\\x" not in repr(PENCIL)
    assert isinstance(USERS["alice"], Secret)
