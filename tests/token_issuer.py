"""An authorization server for tests: an HTTP server that signs tokens and publishes its public keys."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://issuer.test"
AUDIENCE = "ottla-cluster"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class TokenIssuer:
    """Mints RS256 tokens for clients that it knows, on a port of its own."""

    def __init__(self, clients: dict[str, str] | None = None, lifetime_s: int = 300) -> None:
        self.clients = clients or {}
        """Secrets by client id."""
        self.lifetime_s = lifetime_s
        self.assertion_key: Any = None
        """The public key of assertions of the jwt-bearer grant."""
        self.asked = 0
        self.jwks_asked = 0
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.new_key("first")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def new_key(self, kid: str) -> None:
        """Sign with a new key from now on; the old ones stay published."""
        self._keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._kid = kid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, subject: str, **changes: Any) -> str:
        """A token of this issuer; `changes` replace claims, None removes one."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + self.lifetime_s}
        claims = {key: value for key, value in (claims | changes).items() if value is not None}
        return jwt.encode(claims, self._keys[self._kid], "RS256", headers={"kid": self._kid})

    def jwks(self) -> bytes:
        """The published keys."""
        keys = [
            {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in self._keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    def grant(self, fields: dict[str, list[str]], authorization: str) -> str | None:
        """The token for a request, or None."""
        self.asked += 1
        if fields.get("grant_type") == [_JWT_BEARER]:
            claims = jwt.decode(fields["assertion"][0], self.assertion_key, ["RS256"], audience=ISSUER)
            return self.token(claims["sub"])
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return self.token(name) if self.clients.get(name) == secret else None


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.jwks_asked += 1
            self._answer(200, issuer.jwks())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            token = issuer.grant(parse_qs(body), self.headers.get("Authorization", ""))
            if token is None:
                self._answer(401, json.dumps({"error": "invalid_client"}).encode())
                return
            document = {"access_token": token, "token_type": "Bearer", "expires_in": issuer.lifetime_s}
            self._answer(200, json.dumps(document).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    return Handler
