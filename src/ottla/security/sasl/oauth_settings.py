"""Makes the judge of a listener's bearer tokens from Kafka's keys. What would let strangers in is refused at start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener
from ottla.credentials.contexts import TlsConfig, client_context_of, load_stores
from ottla.credentials.errors import CredentialsError
from ottla.security.profile import is_loopback
from ottla.security.sasl.jwks import URL_KEY, KeySet
from ottla.security.sasl.jwt_validation import ClaimRules, JwksValidator, TokenValidator, UnsecuredValidator

_HANDLER_KEY: Final = "oauthbearer.sasl.server.callback.handler.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_UNSECURED: Final = (
    _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    _PACKAGE + "OAuthBearerUnsecuredValidatorCallbackHandler",
)
_SECURED: Final = (
    _PACKAGE + "OAuthBearerValidatorCallbackHandler",
    _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",
)
_ISSUER_KEY: Final = "sasl.oauthbearer.expected.issuer"
_AUDIENCE_KEY: Final = "sasl.oauthbearer.expected.audience"
ANY_ISSUER_KEY: Final = "sasl.oauthbearer.allow.unverified.issuer"
ANY_AUDIENCE_KEY: Final = "sasl.oauthbearer.allow.unverified.audience"


def token_validator(listener: Listener, keys: Mapping[str, str], jaas: Mapping[str, str]) -> TokenValidator:
    """The judge of a listener's tokens. `keys` are those in force for it. Raises ConfigError."""
    handler = (keys.get(_HANDLER_KEY) or "").strip()
    if handler in _UNSECURED:
        return _unsecured(listener, keys, jaas)
    if handler and handler not in _SECURED:
        raise ConfigError.bad_value(_HANDLER_KEY, handler, f"{_SECURED[0]}, or {_UNSECURED[0]} for trials")
    url = (keys.get(URL_KEY) or "").strip()
    if not url:
        raise ConfigError(
            f"Missing configuration {URL_KEY}: listener {listener.name} takes OAUTHBEARER, and without the keys of the "
            "issuer it could not tell a real token from another",
            key=URL_KEY,
        )
    rules = ClaimRules(
        issuer=_expected(keys, _ISSUER_KEY, ANY_ISSUER_KEY, listener),
        audience=_audience(_expected(keys, _AUDIENCE_KEY, ANY_AUDIENCE_KEY, listener)),
        skew_s=_number(keys, "sasl.oauthbearer.clock.skew.seconds", 30),
        subject_claim=(keys.get("sasl.oauthbearer.sub.claim.name") or "sub").strip(),
        scope_claim=(keys.get("sasl.oauthbearer.scope.claim.name") or "scope").strip(),
    )
    refresh_s = _number(keys, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000) / 1000
    store_keys = {key: text for key, text in jaas.items() if key.startswith("ssl.")}
    try:
        context = None
        if store_keys:
            tls = TlsConfig.of(store_keys)
            context = client_context_of(tls, load_stores(tls, datetime.now(UTC)))
        key_set = KeySet(url, refresh_s, time.monotonic, context)
        key_set.start()
    except CredentialsError as error:
        raise ConfigError(f"Invalid configuration {URL_KEY}: {error}", key=URL_KEY) from None
    return JwksValidator(key_set.find, rules)


def _unsecured(listener: Listener, keys: Mapping[str, str], jaas: Mapping[str, str]) -> TokenValidator:
    if not is_loopback(listener.host):
        raise ConfigError(
            f"Listener {listener.name} takes unsecured tokens, which anybody can make, and is not on the loopback "
            f"interface: set {URL_KEY} and remove {_HANDLER_KEY}",
            key=_HANDLER_KEY,
        )
    skew = jaas.get("unsecuredValidatorAllowableClockSkewMs", "0")
    claim = jaas.get("unsecuredValidatorPrincipalClaimName", "sub")
    return UnsecuredValidator(ClaimRules(None, None, int(skew) // 1000 if skew.isdecimal() else 0, claim))


def _expected(keys: Mapping[str, str], key: str, opt_out: str, listener: Listener) -> str | None:
    """What a token must say; None if the operator opted out."""
    text = (keys.get(key) or "").strip()
    if text:
        return text
    if (keys.get(opt_out) or "false").strip().lower() == "true":
        return None
    raise ConfigError(
        f"Missing configuration {key}: without it listener {listener.name} would take tokens that are meant for other "
        f"systems; {opt_out}=true says that this is wanted",
        key=key,
    )


def _audience(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(word.strip() for word in text.split(",") if word.strip())


def _number(keys: Mapping[str, str], key: str, default: int) -> int:
    text = (keys.get(key) or str(default)).strip()
    if not text.isdecimal():
        raise ConfigError.bad_value(key, text, "a number of at least 0")
    return int(text)
