"""The client's side of SASL PLAIN and SCRAM (RFC 5802): pure messages in and out; a connection carries them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.credentials.scram_keys import MIN_ITERATIONS, SCRAM_HASHES
from ottla.credentials.secret import Secret

MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES)

_NO_BINDING: Final = "n,,"
_MAX_ITERATIONS: Final = 1_000_000
"""A server that asks for more wants to keep us busy."""


class LoginFailed(Exception):
    """The broker does not keep to the exchange or does not know the password; the text says which."""


class SaslClient(Protocol):
    """One exchange: `first` goes out, `next` takes each answer; None ends it. Both may block: call them in a thread.

    Both raise LoginFailed.
    """

    def first(self) -> bytes: ...

    def next(self, answer: bytes) -> bytes | None: ...


class Login(Protocol):
    """How a client logs in."""

    @property
    def mechanism(self) -> str: ...

    def begin(self, host: str) -> SaslClient:
        """A new exchange with the broker at this host. Raises LoginFailed."""
        ...


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """A login by name and password."""

    mechanism: str
    user: str
    password: Secret
    token: bool
    """The user is the id of a delegation token, and the password its secret."""

    def __init__(self, mechanism: str, user: str, password: str | Secret, *, token: bool = False) -> None:
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "token", token)
        object.__setattr__(self, "password", password if isinstance(password, Secret) else Secret(password))

    def begin(self, host: str = "") -> SaslClient:
        """A new exchange. Passwords are the same for every host."""
        if self.mechanism == "PLAIN":
            return PlainClient(self.user, self.password)
        return ScramClient(self.mechanism, self.user, self.password, token=self.token)


class PlainClient:
    """One message with name and password."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password.reveal()}".encode()

    def next(self, answer: bytes) -> bytes | None:
        """The broker has nothing to add."""
        return None


class ScramClient:
    """Proves that it knows the password, and that the server knows it too."""

    def __init__(
        self, mechanism: str, user: str, password: Secret, nonce: str | None = None, *, token: bool = False
    ) -> None:
        """`token`: the user is the id of a delegation token."""
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}{',tokenauth=true' if token else ''}"
        self._signature = b""

    def first(self) -> bytes:
        return f"{_NO_BINDING}{self._bare}".encode()

    def next(self, answer: bytes) -> bytes | None:
        if self._signature:
            self._verify(answer)
            return None
        return self._final(answer)

    def _final(self, challenge: bytes) -> bytes:
        words = _words(challenge)
        nonce, salt, count = words.get("r", ""), words.get("s", ""), words.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or not count.isdecimal():
            raise LoginFailed("the broker does not keep to SCRAM")
        try:
            salt_bytes, iterations = base64.b64decode(salt, validate=True), int(count)
        except ValueError:
            raise LoginFailed("the broker does not keep to SCRAM") from None
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise LoginFailed(f"the broker asks for {iterations} SCRAM iterations, which is not safe")
        password = self._password.reveal().encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt_bytes, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        unproven = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        said = b",".join([self._bare.encode(), challenge, unproven.encode()])
        signature = hmac.digest(stored, said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), said, self._hash)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, final: bytes) -> None:
        expected = f"v={base64.b64encode(self._signature).decode()}".encode()
        if not hmac.compare_digest(expected, final.split(b",")[0]):
            raise LoginFailed("the broker does not know the password: it is not the one it pretends to be")


def _words(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode(errors="replace").split(",") if "=" in part)
