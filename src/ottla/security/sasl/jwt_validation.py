"""Whether a bearer token may be believed: signature, algorithm, time, issuer, audience (RFC 7519, RFC 8725).

Nothing that a token says chooses where its key comes from: headers that carry or name keys are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, Protocol

from ottla.credentials.http_fetch import printable
from ottla.security.sasl.jwks import ALGORITHMS, SigningKey

MAX_JWT_BYTES: Final = 16 << 10
_MAX_SUBJECT: Final = 1024
_FORBIDDEN: Final = frozenset({"jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "enc"})
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})

Claims = dict[str, object]


class InvalidToken(Exception):
    """Why a token is not believed: for the broker's log. It holds nothing secret of the token."""


class ValidToken(NamedTuple):
    """Who a token stands for, and when it ends."""

    subject: str
    expires_at_ms: int
    scopes: tuple[str, ...]


class TokenValidator(Protocol):
    """Judges a token at a time (epoch seconds). Raises InvalidToken."""

    def validate(self, token: str, now_s: float) -> ValidToken: ...


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What the claims of a token must be. None for issuer or audience: any."""

    issuer: str | None
    audience: frozenset[str] | None
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"

    def check(self, claims: Claims, now_s: float) -> ValidToken:
        end, begin = _time(claims, "exp"), _time(claims, "iat")
        if end is None or begin is None:
            raise InvalidToken("the token has no exp or no iat")
        if now_s >= end + self.skew_s:
            raise InvalidToken(f"the token ended {now_s - end:.0f} s ago")
        if begin > now_s + self.skew_s:
            raise InvalidToken("the token's iat is in the future")
        if end < begin:
            raise InvalidToken("the token's exp is before its iat")
        not_before = _time(claims, "nbf")
        if not_before is not None and not_before > now_s + self.skew_s:
            raise InvalidToken("the token's nbf is in the future")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken(f"the token's issuer is {_shown(claims.get('iss'))}")
        if self.audience is not None and not self.audience & set(_texts(claims.get("aud"))):
            raise InvalidToken(f"the token's audience is {_shown(claims.get('aud'))}")
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject.strip() or len(subject) > _MAX_SUBJECT:
            raise InvalidToken(
                f"the token's claim {self.subject_claim} is no text of 1 to {_MAX_SUBJECT} characters"
            )
        return ValidToken(subject.strip(), end * 1000, _texts(claims.get(self.scope_claim)))


class JwksValidator:
    """Tokens that an issuer signed with a key of its published set."""

    def __init__(self, find_key: Callable[[str], SigningKey | None], rules: ClaimRules) -> None:
        self._find_key = find_key
        self._rules = rules

    def validate(self, token: str, now_s: float) -> ValidToken:
        import jwt

        header = _object(_parts(token)[0], "header")
        if found := _FORBIDDEN & header.keys():
            raise InvalidToken(f"the token's header has {', '.join(sorted(found))}")
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidToken(f"the token's algorithm is {_shown(algorithm)}")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise InvalidToken(f"the token's type is {_shown(kind)}")
        if not isinstance(kid, str) or not kid:
            raise InvalidToken("the token's header has no kid")
        key = self._find_key(kid)
        if key is None:
            raise InvalidToken(f"no key {printable(kid)} is known")
        if algorithm not in key.algorithms:
            raise InvalidToken(f"the key {printable(kid)} is not for {algorithm}")
        try:
            payload = jwt.PyJWS(algorithms=[algorithm]).decode(token, key.key.key, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            raise InvalidToken("the token's signature does not fit") from None
        return self._rules.check(_parsed(payload, "payload"), now_s)


class UnsecuredValidator:
    """Tokens that nobody signed: for trials on the loopback interface."""

    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules

    def validate(self, token: str, now_s: float) -> ValidToken:
        header, payload, signature = _parts(token)
        if _object(header, "header").get("alg") != "none" or signature:
            raise InvalidToken("the token is signed, and this listener takes only unsecured tokens")
        return self._rules.check(_object(payload, "payload"), now_s)


def _parts(token: str) -> list[str]:
    if len(token) > MAX_JWT_BYTES:
        raise InvalidToken(f"the token is larger than {MAX_JWT_BYTES} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"the token has {len(parts)} parts, not three")
    return parts


def _object(part: str, what: str) -> Claims:
    try:
        return _parsed(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True), what)
    except (binascii.Error, ValueError):
        raise InvalidToken(f"the token's {what} is no base64url text") from None


def _parsed(text: bytes, what: str) -> Claims:
    try:
        document = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidToken(f"the token's {what} is no JSON, or has a name twice") from None
    if not isinstance(document, dict):
        raise InvalidToken(f"the token's {what} is no JSON object")
    return document


def _without_repetition(pairs: list[tuple[str, object]]) -> Claims:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _time(claims: Claims, name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise InvalidToken(f"the token's {name} is no whole number of seconds")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str))
    return ()


def _shown(value: object) -> str:
    return printable(repr(value))
