"""The client's side of OAUTHBEARER (RFC 7628): where tokens come from, and the message that carries one.

Sources, by Kafka's keys: a token endpoint (client_credentials, or jwt-bearer with a file or an assertion made here),
a file, and unsecured tokens for trials.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, urlencode

from ottla.credentials.contexts import TlsConfig, client_context_of, load_stores
from ottla.credentials.errors import CredentialsError
from ottla.credentials.http_fetch import FetchFailed, check_url, fetch, file_path, printable
from ottla.credentials.sasl_client import LoginFailed, SaslClient
from ottla.credentials.secret import Secret

MECHANISM: Final = "OAUTHBEARER"
MAX_TOKEN_BYTES: Final = 16 << 10
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVER_KEY: Final = "sasl.oauthbearer.jwt.retriever.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_CLIENT_ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"
_ASSERTION_FILE_KEY: Final = "sasl.oauthbearer.assertion.file"
_KEY_FILE_KEY: Final = "sasl.oauthbearer.assertion.private.key.file"
_ALGORITHM_KEY: Final = "sasl.oauthbearer.assertion.algorithm"
_CLAIM_KEYS: Final = {
    "iss": "sasl.oauthbearer.assertion.claim.iss",
    "sub": "sasl.oauthbearer.assertion.claim.sub",
    "aud": "sasl.oauthbearer.assertion.claim.aud",
}
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_"
_EXTENSION: Final = "extension_"
_UNSECURED_LIFETIME_S: Final = 3600
_WINDOW_FACTOR: Final = 0.8
"""A token is renewed after this part of its life, as `sasl.login.refresh.window.factor` says."""


class Token(NamedTuple):
    """A bearer token, and when it ends (epoch seconds; 0 if it does not say)."""

    value: Secret
    expires_at_s: float


class TokenSource(Protocol):
    """Gives a token, new or not yet near its end. Blocks. Raises LoginFailed."""

    def token(self) -> Token: ...


class OAuthBearerClient:
    """One exchange: the token; after a refusal one more message, which the protocol asks for."""

    def __init__(self, token: Callable[[], Secret], extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self._refusal = ""

    def first(self) -> bytes:
        """Blocks until there is a token."""
        pairs = [f"auth=Bearer {self._token().reveal()}", *(f"{k}={v}" for k, v in self._extensions.items())]
        return "\x01".join(["n,,", *pairs, "\x01"]).encode()

    def next(self, answer: bytes) -> bytes | None:
        if self._refusal:
            raise LoginFailed(f"the broker does not take the token: {self._refusal}")
        if not answer:
            return None
        self._refusal = printable(answer.decode(errors="replace"))
        return b"\x01"


@dataclass(frozen=True, slots=True)
class OAuthLogin:
    """How a client logs in with tokens. It holds secrets and is not pickled."""

    source: TokenSource
    extensions: Mapping[str, str] = field(default_factory=dict)
    mechanism: str = MECHANISM

    def begin(self, host: str = "") -> SaslClient:
        """A new exchange. Tokens are the same for every host."""
        return OAuthBearerClient(lambda: self.source.token().value, self.extensions)


def oauth_login(keys: Mapping[str, str], jaas: Mapping[str, str]) -> OAuthLogin:
    """From the `sasl.oauthbearer.*` keys and the options of the JAAS entry. Raises CredentialsError."""
    extensions = {
        key.removeprefix(_EXTENSION): text for key, text in jaas.items() if key.startswith(_EXTENSION)
    }
    return OAuthLogin(token_source(keys, jaas), extensions)


def token_source(keys: Mapping[str, str], jaas: Mapping[str, str]) -> TokenSource:
    """Where the tokens of a client come from, by its keys. Raises CredentialsError."""
    url = (keys.get(URL_KEY) or "").strip()
    if not url:
        claims = {
            key.removeprefix(_UNSECURED_CLAIM): text
            for key, text in jaas.items()
            if key.startswith(_UNSECURED_CLAIM)
        }
        if claims.get("sub"):
            return UnsecuredTokens(claims)
        raise CredentialsError(f"OAUTHBEARER needs {URL_KEY}: the address of the token endpoint, or a file:")
    scheme = check_url(URL_KEY, url)
    if scheme == "file":
        return TokenFile(file_path(url))
    retriever = (keys.get(_RETRIEVER_KEY) or "").strip().removeprefix(_PACKAGE) or "DefaultJwtRetriever"
    fields: Callable[[], dict[str, str]]
    headers: Callable[[], dict[str, str]]
    if retriever in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"):
        fields, headers = _client_credentials(keys, jaas)
    elif retriever == "JwtBearerJwtRetriever":
        fields, headers = _jwt_bearer(keys), dict
    else:
        raise CredentialsError(
            f"{_RETRIEVER_KEY}={retriever}: expected {_PACKAGE}ClientCredentialsJwtRetriever or JwtBearerJwtRetriever"
        )
    scope = keys.get("sasl.oauthbearer.scope") or jaas.get("scope") or ""
    store_keys = {key: text for key, text in jaas.items() if key.startswith("ssl.")}
    tls = TlsConfig.of(store_keys) if store_keys else None
    return TokenEndpoint(url, fields, headers, scope, tls)


class TokenEndpoint:
    """Asks an authorization server, and keeps the token until most of its life has passed."""

    def __init__(
        self,
        url: str,
        fields: Callable[[], dict[str, str]],
        headers: Callable[[], dict[str, str]],
        scope: str = "",
        tls: TlsConfig | None = None,
    ) -> None:
        self._url = url
        self._fields = fields
        self._headers = headers
        self._scope = scope
        self._tls = tls
        self._lock = threading.Lock()
        self._kept: Token | None = None
        self._renew_at = 0.0

    def token(self) -> Token:
        with self._lock:
            now = time.time()
            if self._kept is None or now >= self._renew_at:
                self._kept = self._ask(now)
                self._renew_at = now + (self._kept.expires_at_s - now) * _WINDOW_FACTOR
            return self._kept

    def _ask(self, now: float) -> Token:
        fields = self._fields()
        if self._scope:
            fields["scope"] = self._scope
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            **self._headers(),
        }
        context = None
        if self._tls is not None:
            from datetime import UTC, datetime

            context = client_context_of(self._tls, load_stores(self._tls, datetime.now(UTC)))
        try:
            body = fetch(self._url, data=urlencode(fields).encode(), headers=headers, context=context)
        except FetchFailed as error:
            raise LoginFailed(f"the token endpoint gives no token: {error}{_reason(error.body)}") from None
        document = _object(body)
        text = document.get("access_token")
        if not isinstance(text, str):
            raise LoginFailed("the answer of the token endpoint has no access_token")
        lasts = document.get("expires_in")
        known = now + lasts if isinstance(lasts, (int, float)) and not isinstance(lasts, bool) else 0.0
        return _checked(text, known)


class TokenFile:
    """Reads the token from a file, again for each login: another process keeps it fresh."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def token(self) -> Token:
        return _checked(_read(self._path).strip(), 0.0)


class ProvidedTokens:
    """Tokens of a function: kafka-python's `sasl_oauth_token_provider`."""

    def __init__(self, provide: Callable[[], str]) -> None:
        self._provide = provide

    def token(self) -> Token:
        return _checked(self._provide(), 0.0)


class UnsecuredTokens:
    """Makes tokens that nobody signed, for trials: a broker takes them only if it was set up for it."""

    def __init__(self, claims: Mapping[str, str]) -> None:
        self._claims = dict(claims)

    def token(self) -> Token:
        now = int(time.time())
        end = now + _UNSECURED_LIFETIME_S
        payload = {**self._claims, "iat": now, "exp": end}
        parts = [_encoded({"alg": "none"}), _encoded(payload), ""]
        return Token(Secret(".".join(parts)), end)


def _client_credentials(
    keys: Mapping[str, str], jaas: Mapping[str, str]
) -> tuple[Callable[[], dict[str, str]], Callable[[], dict[str, str]]]:
    client_id = keys.get(_CLIENT_ID_KEY) or jaas.get("clientId") or ""
    secret = keys.get(_CLIENT_SECRET_KEY) or jaas.get("clientSecret") or ""
    if not client_id or not secret:
        raise CredentialsError(f"OAUTHBEARER needs {_CLIENT_ID_KEY} and {_CLIENT_SECRET_KEY}")
    if (keys.get("sasl.oauthbearer.header.urlencode") or "").strip().lower() == "true":
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    basic = Secret(base64.b64encode(f"{client_id}:{secret}".encode()).decode())
    return (
        lambda: {"grant_type": "client_credentials"},
        lambda: {"Authorization": f"Basic {basic.reveal()}"},
    )


def _jwt_bearer(keys: Mapping[str, str]) -> Callable[[], dict[str, str]]:
    file = keys.get(_ASSERTION_FILE_KEY)
    if file:
        path = Path(file)
        return lambda: {"grant_type": _JWT_BEARER, "assertion": _read(path).strip()}
    key_file = keys.get(_KEY_FILE_KEY)
    if not key_file:
        raise CredentialsError(f"jwt-bearer needs {_ASSERTION_FILE_KEY} or {_KEY_FILE_KEY}")
    maker = AssertionMaker(Path(key_file), dict(keys))
    return lambda: {"grant_type": _JWT_BEARER, "assertion": maker.make()}


class AssertionMaker:
    """Signs the assertion of a jwt-bearer grant (KIP-1139). The key file is read for each one."""

    def __init__(self, key_file: Path, keys: Mapping[str, str]) -> None:
        self._key_file = key_file
        self._keys = keys
        self._algorithm = (keys.get(_ALGORITHM_KEY) or "RS256").upper()
        if self._algorithm not in ("RS256", "ES256"):
            raise CredentialsError(f"{_ALGORITHM_KEY}={self._algorithm}: expected RS256 or ES256")

    def make(self) -> str:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        keys, now = self._keys, int(time.time())
        template_file = keys.get("sasl.oauthbearer.assertion.template.file")
        template = _object(_read(Path(template_file)).encode()) if template_file else {}
        header, claims = dict(template.get("header") or {}), dict(template.get("payload") or {})
        for name, key in _CLAIM_KEYS.items():
            if keys.get(key):
                claims[name] = keys[key]
        claims["iat"] = now
        claims["exp"] = now + int(keys.get("sasl.oauthbearer.assertion.claim.exp.seconds") or 300)
        claims["nbf"] = now - int(keys.get("sasl.oauthbearer.assertion.claim.nbf.seconds") or 60)
        if (keys.get("sasl.oauthbearer.assertion.claim.jti.include") or "false").strip().lower() == "true":
            claims["jti"] = secrets.token_urlsafe(16)
        passphrase = keys.get("sasl.oauthbearer.assertion.private.key.passphrase")
        try:
            private = load_pem_private_key(
                _read(self._key_file).encode(), passphrase.encode() if passphrase else None
            )
            return jwt.encode(claims, private, self._algorithm, headers=header)  # type: ignore[arg-type]
        except (ValueError, TypeError, jwt.PyJWTError):
            raise LoginFailed(
                f"the assertion cannot be signed: {self._key_file} holds no private key for {self._algorithm}, or "
                "its passphrase is wrong"
            ) from None


def _checked(text: str, known_end_s: float) -> Token:
    """A token's text within bounds, with its end by its own claims."""
    if not text or len(text) > MAX_TOKEN_BYTES or any(char <= " " or char > "~" for char in text):
        raise LoginFailed(f"the token is empty, larger than {MAX_TOKEN_BYTES} bytes, or no token")
    return Token(Secret(text), _own_end_s(text) or known_end_s)


def _own_end_s(text: str) -> float:
    """The `exp` of a JWT, unverified: only the broker can judge the token."""
    parts = text.split(".")
    if len(parts) != 3:
        return 0.0
    try:
        end = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).get("exp")
    except (ValueError, binascii.Error, AttributeError, RecursionError):
        return 0.0
    return float(end) if isinstance(end, (int, float)) and not isinstance(end, bool) else 0.0


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 * MAX_TOKEN_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LoginFailed(f"{path} cannot be read: {reason}") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise LoginFailed("expected a JSON object, and found something else")
    return document


def _reason(body: bytes) -> str:
    """The error of RFC 6749 in a refusal."""
    try:
        document = json.loads(body)
        return f" ({printable(str(document['error']))})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _encoded(document: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
