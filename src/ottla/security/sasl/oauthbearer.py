"""OAUTHBEARER (RFC 7628, KIP-255): the client shows a bearer token, and is who the token says.

A token that is not believed is answered with a JSON text and no error; the client's next message then gets the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.sasl.jwt_validation import MAX_JWT_BYTES, InvalidToken, TokenValidator
from ottla.security.sasl.mechanism import SaslFailed

INVALID_TOKEN: Final = '{"status":"invalid_token"}'
MAX_MESSAGE_BYTES: Final = MAX_JWT_BYTES + 8192
_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS: Final = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_.a-zA-Z0-9]+)", re.IGNORECASE)


class OAuthBearerServer:
    """One exchange: a token; after a refusal the client's acknowledgement of it."""

    __slots__ = ("_now_s", "_refused", "_validator", "complete", "expires_at_ms", "principal")

    def __init__(self, validator: TokenValidator, now_s: Callable[[], float]) -> None:
        self._validator = validator
        self._now_s = now_s
        self._refused = ""
        self.complete = False
        self.principal: Principal = ANONYMOUS
        self.expires_at_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Check the client's token. Extensions are ignored."""
        if self._refused:
            raise SaslFailed(INVALID_TOKEN if token == b"\x01" else None, self._refused)
        if len(token) > MAX_MESSAGE_BYTES:
            raise SaslFailed(None, "the OAUTHBEARER message is too large")
        found = _FIRST.fullmatch(token.decode("ascii", errors="replace"))
        if found is None:
            raise SaslFailed(None, "the OAUTHBEARER message is not well-formed")
        pairs = [pair.partition("=") for pair in found["pairs"].split("\x01") if pair]
        bearer = [match for key, _, text in pairs if key == "auth" and (match := _BEARER.fullmatch(text))]
        if len(bearer) != 1:
            raise SaslFailed(None, "the OAUTHBEARER message has no bearer token")
        try:
            valid = self._validator.validate(bearer[0]["token"], self._now_s())
        except InvalidToken as error:
            self._refused = str(error)
            return INVALID_TOKEN.encode()
        authorization_id = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id != valid.subject:
            raise SaslFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({valid.subject})"
            )
        self.principal = user(valid.subject)
        self.expires_at_ms = valid.expires_at_ms
        self.complete = True
        return b""
