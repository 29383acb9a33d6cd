"""The client's side of SCRAM (RFC 5802): what is said to a broker, and the proof that it knows the password too.

Pure words in and out; the connection carries them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, with their hashes."""

_NO_BINDING: Final = "n,,"
_MIN_ITERATIONS: Final = 4096
_MAX_ITERATIONS: Final = 10_000_000
"""A server that asks for more wants to keep us busy."""


class ScramFailed(Exception):
    """The other side does not keep to the exchange, or does not let us in; the text says why."""


class ScramClient:
    """One exchange: `first`, then `final` with the server's first word, then `verify` with its last."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        self._hash = MECHANISMS[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"{_NO_BINDING}{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof that we know the password."""
        words = _words(server_first)
        nonce, salt, count = words.get("r", ""), words.get("s", ""), words.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or not count.isdecimal():
            raise ScramFailed("the broker does not keep to SCRAM")
        if not _MIN_ITERATIONS <= int(count) <= _MAX_ITERATIONS:
            raise ScramFailed(f"the broker asks for {count} iterations, which is not safe")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(salt), int(count))
        client_key = self._hmac(salted, b"Client Key")
        stored = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        said = b",".join([self._bare.encode(), server_first, without_proof.encode()])
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored, said), strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raise, if the server does not know the password."""
        words = _words(server_final)
        if "e" in words:
            raise ScramFailed(f"the broker answers {words['e']}")
        given = base64.b64decode(words.get("v", ""))
        if not self._signature or not hmac.compare_digest(given, self._signature):
            raise ScramFailed("the broker cannot prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _words(message: bytes) -> dict[str, str]:
    pairs = (word.partition("=") for word in message.decode().split(","))
    return {key: value for key, _, value in pairs}
