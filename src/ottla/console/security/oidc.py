"""Sign-in by OpenID Connect: the code flow with PKCE, and roles from a claim of the identity token.

The issuer's address comes from the users file alone. Plain HTTP is for an issuer on this machine only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode, urlsplit

from ottla.console.security.roles import Forbidden, Principal, Role
from ottla.console.settings import LOOPBACK
from ottla.errors import ApiException, ErrorCode
from ottla.json_types import Json, JsonObject, as_list, as_object, as_text

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_PENDING_S: Final = 600.0
_MAX_PENDING: Final = 1_000
_KEYS_FOR_S: Final = 3600.0
_MOST_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 10.0
_LEEWAY_S: Final = 60
_NO_EXTRA: Final = "sign-in by OpenID Connect needs PyJWT: pip install 'pyjwt[crypto]'"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An issuer that sends the console elsewhere is refused."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that has begun."""

    nonce: str
    verifier: str = field(repr=False)
    to: str
    redirect: str
    expires_s: float


@dataclass(slots=True)
class Oidc:
    """One issuer."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False, default="")
    claim: str = "groups"
    name_claim: str = "email"
    redirect: str = ""
    roles: dict[str, tuple[Role, ...]] = field(default_factory=dict)
    read_only: bool = False
    _pending: OrderedDict[str, Pending] = field(default_factory=OrderedDict, repr=False)
    _found: tuple[float, JsonObject, JsonObject] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Json], roles: Mapping[str, Role], *, read_only: bool) -> Oidc:
        """The section `oidc` of a users file; ApiException that names the mistake."""
        issuer = str(fields.get("issuer", "")).rstrip("/")
        _check_address(issuer, "issuer")
        if not fields.get("client_id"):
            raise ApiException(ErrorCode.INVALID_REQUEST, "oidc: client_id is missing")
        mapped: dict[str, tuple[Role, ...]] = {}
        for value, names in as_object(fields.get("roles", {}), "oidc: roles").items():
            wanted = [as_text(name, "oidc: a role") for name in as_list(names, f"oidc: the roles of {value}")]
            missing = [name for name in wanted if name not in roles]
            if missing:
                raise ApiException(
                    ErrorCode.INVALID_REQUEST, f"oidc: there is no role '{missing[0]}' for {value}"
                )
            mapped[str(value)] = tuple(roles[name] for name in wanted)
        return cls(
            issuer,
            str(fields["client_id"]),
            str(fields.get("client_secret", "")),
            str(fields.get("claim", "groups")),
            str(fields.get("name_claim", "email")),
            str(fields.get("redirect", "")),
            mapped,
            read_only,
        )

    # -- the flow; these block

    def begin(self, to: str, root: str) -> tuple[str, str]:
        """(state, address): where the browser goes to sign in."""
        configuration, _ = self._configuration()
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        state = secrets.token_urlsafe(32)
        redirect = self.redirect or f"{root}/oidc/done"
        pending = Pending(secrets.token_urlsafe(24), verifier, to, redirect, time.monotonic() + _PENDING_S)
        self._pending[state] = pending
        while len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect,
            "scope": "openid email profile",
            "state": state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = str(configuration["authorization_endpoint"])
        return state, f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    def finish(self, state: str, code: str) -> tuple[Principal, str]:
        """Who signed in, and where they wanted to go. A state is good for one time."""
        pending = self._pending.pop(state, None)
        if pending is None or pending.expires_s < time.monotonic():
            raise Forbidden("This sign-in is too old, or not from this console: begin again.")
        configuration, keys = self._configuration()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect,
            "client_id": self.client_id,
            "code_verifier": pending.verifier,
        }
        if self.client_secret:
            form["client_secret"] = self.client_secret
        answer = _fetch(str(configuration["token_endpoint"]), form)
        claims = self._verify(
            str(answer.get("id_token", "")), keys, pending.nonce, str(configuration["issuer"])
        )
        return self.principal(claims), pending.to

    def principal(self, claims: Mapping[str, Json]) -> Principal:
        """Who a verified token stands for; Forbidden without a role."""
        found = claims.get(self.claim, [])
        values = (
            [found]
            if isinstance(found, str)
            else list(map(str, found))
            if isinstance(found, list | dict)
            else []
        )
        roles = tuple(role for value in values for role in self.roles.get(value, ()))
        name = str(claims.get(self.name_claim) or claims.get("sub") or "")[:200]
        if not roles or not name:
            raise Forbidden(f"{name or 'This user'} has no role here: ask who runs the console.")
        return Principal(name, roles, self.read_only)

    def _verify(self, token: str, keys: Mapping[str, Json], nonce: str, issuer: str) -> JsonObject:
        try:
            import jwt
        except ImportError:
            raise ApiException(ErrorCode.INVALID_REQUEST, _NO_EXTRA) from None
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in _ALGORITHMS:
                raise Forbidden(
                    f"The identity token is signed with {str(algorithm)[:20]}, which is not accepted."
                )
            known = jwt.PyJWKSet.from_dict(dict(keys))
            fitting = [key for key in known.keys if header.get("kid") in (None, key.key_id)]
            if not fitting:
                raise Forbidden("The identity token is signed with a key that the issuer does not publish.")
            claims: JsonObject = jwt.decode(
                token,
                fitting[0].key,
                algorithms=[algorithm],
                audience=self.client_id,
                issuer=issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise Forbidden(f"The identity token is not accepted: {error}.") from None
        if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise Forbidden("The identity token belongs to another sign-in.")
        return claims

    def _configuration(self) -> tuple[JsonObject, JsonObject]:
        """The issuer's own description and its keys, kept for an hour."""
        now = time.monotonic()
        if self._found is not None and now < self._found[0]:
            return self._found[1], self._found[2]
        described = _fetch(f"{self.issuer}/.well-known/openid-configuration")
        if str(described.get("issuer", "")).rstrip("/") != self.issuer:
            raise Forbidden("What answers at the issuer's address is another issuer.")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _check_address(str(described.get(name, "")), name)
        keys = _fetch(str(described["jwks_uri"]))
        self._found = now + _KEYS_FOR_S, described, keys
        return described, keys


def _check_address(url: str, what: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname in LOOPBACK:
        return
    raise ApiException(
        ErrorCode.INVALID_REQUEST, f"oidc: the {what} must be an https address, not '{url[:100]}'"
    )


def _fetch(url: str, form: Mapping[str, str] | None = None) -> JsonObject:
    data = urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(url, data, {"Accept": "application/json"})
    try:
        with _opener.open(request, timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise Forbidden(f"The issuer refuses the sign-in: {error.code} {error.reason}.") from None
    except (OSError, ValueError) as error:
        host = urlsplit(url).hostname
        raise ApiException(
            ErrorCode.NETWORK_EXCEPTION, f"The issuer at {host} does not answer: {error}."
        ) from None
    if not isinstance(found, dict):
        raise Forbidden("The issuer's answer cannot be read.")
    return found
