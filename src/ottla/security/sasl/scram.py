"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the server knows keys derived from passwords.

An unknown user gets a challenge like any other and fails at the proof, so that names cannot be probed. Apache Kafka
refuses one step earlier.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.credentials.scram_keys import DEFAULT_ITERATIONS, SCRAM_HASHES
from ottla.metadata.image import ScramCredential
from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.sasl.mechanism import SaslFailed

MAX_NAME_BYTES: Final = 1024

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class TokenCredential(NamedTuple):
    """The credential of a delegation token: its owner, when it ends, and its keys."""

    owner: Principal
    expires_at_ms: int
    credential: ScramCredential


FindUser = Callable[[str], ScramCredential | None]
FindToken = Callable[[str], TokenCredential | None]
DeriveToken = Callable[[str], Callable[[], None] | None]
"""Work for a thread, after which the token is found; None where there is none to do."""


class ScramServer:
    """One exchange: first message, challenge, proof."""

    __slots__ = (
        "_credential",
        "_derive_token",
        "_find_token",
        "_find_user",
        "_first",
        "_hash",
        "_header",
        "_mechanism",
        "_nonce",
        "_probing_key",
        "_said",
        "complete",
        "expires_at_ms",
        "principal",
    )

    def __init__(
        self,
        mechanism: str,
        find_user: FindUser,
        find_token: FindToken | None,
        probing_key: bytes,
        nonce: str | None = None,
        derive_token: DeriveToken | None = None,
    ) -> None:
        """`probing_key` is a secret of the node, from which unknown users get their salt."""
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._find_user = find_user
        self._find_token = find_token
        self._derive_token = derive_token
        self._probing_key = probing_key
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._first = True
        self._credential: ScramCredential | None = None
        self._header = ""
        self._said = b""
        self.complete = False
        self.principal: Principal = ANONYMOUS
        self.expires_at_ms: int | None = None

    def preparation(self, token: bytes) -> Callable[[], None] | None:
        """What has to be done in a thread before `evaluate` can take this message; None where nothing has."""
        if self._derive_token is None or not self._first:
            return None
        found = _CLIENT_FIRST.fullmatch(token.decode("ascii", errors="replace"))
        if found is None or len(found["name"]) > MAX_NAME_BYTES or not _is_token(_extensions(found)):
            return None
        return self._derive_token(_plain_name(found["name"]))

    def evaluate(self, token: bytes) -> bytes:
        """The challenge for the first message, the server's signature for the proof."""
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise SaslFailed(None, "a SCRAM message is not ASCII") from None
        if self._first:
            self._first = False
            return self._challenge(text)
        if self.complete or not self._said:
            raise SaslFailed(None, "a SCRAM message came after the last one")
        return self._verify(text)

    def _challenge(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or len(found["name"]) > MAX_NAME_BYTES:
            raise SaslFailed(None, "the first SCRAM message is not well-formed")
        name = _plain_name(found["name"])
        if _is_token(_extensions(found)):
            token = None if self._find_token is None else self._find_token(name)
            credential = None if token is None else token.credential
            if token is not None:
                self.principal = token.owner._replace(token_authenticated=True)
                self.expires_at_ms = token.expires_at_ms
        else:
            credential = self._find_user(name)
            self.principal = user(name)
        authorization_id = _plain_name(found["authzid"] or "")
        if authorization_id and authorization_id != name:
            raise SaslFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._credential = credential
        self._header = found["header"]
        self._nonce = found["nonce"] + self._nonce
        salt, iterations = self._probing_salt(name), DEFAULT_ITERATIONS
        if credential is not None:
            salt, iterations = credential.salt, credential.iterations
        challenge = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._said = f"{found['bare']},{challenge}".encode()
        return challenge.encode()

    def _probing_salt(self, name: str) -> bytes:
        return hmac.digest(self._probing_key, name.encode(), "sha256")[:16]

    def _verify(self, text: str) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise SaslFailed(None, "the final SCRAM message is not well-formed")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise SaslFailed(None, "the final SCRAM message has another nonce")
        if base64.b64decode(found["binding"]) != self._header.encode():
            raise SaslFailed(None, "the final SCRAM message has another channel binding")
        credential = self._credential
        said = self._said + b"," + found["unproven"].encode()
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except binascii.Error:
            raise SaslFailed(None, "the SCRAM proof is not base64") from None
        stored = bytes(hashlib.new(self._hash).digest_size) if credential is None else credential.stored_key
        signature = hmac.digest(stored, said, self._hash)
        if len(proof) != len(signature):
            raise SaslFailed(None, "the SCRAM proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        proven = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored)
        if credential is None or not proven:
            raise SaslFailed(None, "unknown user" if credential is None else "wrong password")
        self._credential, self._said = None, b""
        self.complete = True
        verifier = base64.b64encode(hmac.digest(credential.server_key, said, self._hash)).decode()
        return f"v={verifier}".encode()


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _extensions(first: re.Match[str]) -> dict[str, str]:
    return dict(part.split("=", 1) for part in first["extensions"].split(",") if part)


def _is_token(extensions: dict[str, str]) -> bool:
    """Whether the name is that of a delegation token."""
    return extensions.get("tokenauth", "").lower() == "true"
