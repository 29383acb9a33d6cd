"""Where a client's tokens come from, and what it does with an answer of the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ottla.credentials.errors import CredentialsError
from ottla.credentials.http_fetch import MAX_DOCUMENT_BYTES, FetchFailed, check_url, fetch
from ottla.credentials.oauth import OAuthBearerClient, oauth_login, token_source
from ottla.credentials.sasl_client import LoginFailed
from ottla.credentials.secret import Secret
from token_issuer import TokenIssuer

URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    made = TokenIssuer({"alice": "s3cret"}, lifetime_s=100)
    yield made
    made.close()


def test_the_messages() -> None:
    client = OAuthBearerClient(lambda: Secret("a.b.c"), {"traceId": "7"})
    assert client.first() == b"n,,\x01auth=Bearer a.b.c\x01traceId=7\x01\x01"
    assert client.next(b"") is None
    refused = OAuthBearerClient(lambda: Secret("a.b.c"))
    assert refused.first() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert refused.next(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginFailed, match="invalid_token"):
        refused.next(b"")


def test_a_token_is_kept_until_most_of_its_life_is_over(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = token_source({URL: f"{issuer.url}/token", ID: "alice", SECRET: "s3cret"}, {})
    first = source.token()
    assert source.token() is first
    assert issuer.asked == 1
    assert "s3cret" not in repr(vars(source))
    later = time.time() + 81
    monkeypatch.setattr(time, "time", lambda: later)
    assert source.token() is not first
    assert issuer.asked == 2


def test_a_refusal_tells_the_reason_and_no_secret(issuer: TokenIssuer) -> None:
    login = oauth_login({URL: f"{issuer.url}/token"}, {"clientId": "alice", "clientSecret": "wr0ng"})
    with pytest.raises(LoginFailed, match=r"answers 401 \(invalid_client\)") as failed:
        login.begin().first()
    assert "wr0ng" not in str(failed.value)
    assert "wr0ng" not in repr(login)


@pytest.mark.parametrize(
    ("keys", "jaas", "why"),
    [
        ({}, {}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({URL: "https://idp.test/token"}, {}, "client.credentials.client.id"),
        ({URL: "http://idp.test/token", ID: "a", SECRET: "b"}, {}, "https: or file:"),
        (
            {URL: "https://idp.test/t", "sasl.oauthbearer.jwt.retriever.class": "com.example.Mine"},
            {},
            "expected",
        ),
    ],
)
def test_settings_that_give_no_token(keys: dict[str, str], jaas: dict[str, str], why: str) -> None:
    with pytest.raises(CredentialsError, match=why):
        token_source(keys, jaas)


def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = token_source({URL: f"file://{file}"}, {})
    with pytest.raises(LoginFailed, match="No such file"):
        source.token()
    for text in ("a.b.c", "d.e.f"):
        file.write_text(text + "\n")
        assert source.token().value == Secret(text)
    file.write_text("two words")
    with pytest.raises(LoginFailed, match="no token"):
        source.token()


def test_unsecured_tokens_for_trials() -> None:
    token = token_source({}, {"unsecuredLoginStringClaim_sub": "alice"}).token()
    assert token.value.reveal().endswith(".")
    assert token.expires_at_s > time.time()


class Hostile(BaseHTTPRequestHandler):
    """An issuer that leads elsewhere or sends without end."""

    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
            self.end_headers()
        elif self.path == "/here":
            self.send_response(302)
            self.send_header("Location", "/small")
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (10 if self.path == "/small" else MAX_DOCUMENT_BYTES + 1))

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""


def test_no_redirection_to_another_origin_and_no_endless_document() -> None:
    server = HTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        assert fetch(f"{url}/here") == b"x" * 10
        with pytest.raises(FetchFailed, match="another origin"):
            fetch(f"{url}/elsewhere")
        with pytest.raises(FetchFailed, match="more than"):
            fetch(f"{url}/large")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(FetchFailed, match="cannot be reached"):
        fetch(f"{url}/small")


def test_addresses() -> None:
    assert check_url("k", "https://x/y") == "https"
    assert check_url("k", "http://localhost:1/y") == "http"
    assert check_url("k", "file:///x") == "file"
    for wrong in ("http://x/y", "gopher://x", "", "https://", "https://user@x/", "http://[::2]/"):
        with pytest.raises(CredentialsError):
            check_url("k", wrong)
