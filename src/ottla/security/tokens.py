"""Logins with delegation tokens: SCRAM credentials derived from a token's secret at its first login."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.credentials.scram_keys import MIN_ITERATIONS, SCRAM_HASHES, derive_keys
from ottla.limits import MAX_TOKEN_CREDENTIALS
from ottla.metadata.image import ScramCredential
from ottla.security.principal import parse_principal
from ottla.security.sasl.scram import TokenCredential

if TYPE_CHECKING:
    from ottla.credentials.delegation_tokens import TokenKey
    from ottla.metadata.image import DelegationToken, MetadataImage

_SALT_BYTES: Final = 16


class TokenCredentials:
    """The credentials of the tokens that clients have logged in with, by mechanism and token id."""

    __slots__ = ("_derived", "_image", "_key", "_now_ms")

    def __init__(self, key: TokenKey, image: Callable[[], MetadataImage], now_ms: Callable[[], int]) -> None:
        self._key = key
        self._image = image
        self._now_ms = now_ms
        self._derived: dict[tuple[str, str], ScramCredential] = {}

    def find(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """The credential of a token that has not expired. It must have been derived before."""
        token = self._valid(token_id)
        credential = self._derived.get((mechanism, token_id))
        if token is None or credential is None:
            return None
        return TokenCredential(
            parse_principal(token.owner), min(token.expiration_timestamp, token.max_timestamp), credential
        )

    def derivation(self, mechanism: str, token_id: str) -> Callable[[], None] | None:
        """Work of a millisecond or two for a thread, after which `find` finds the token; None if there is none."""
        if self._valid(token_id) is None or (mechanism, token_id) in self._derived:
            return None
        if len(self._derived) >= MAX_TOKEN_CREDENTIALS:
            tokens = self._image().tokens
            self._derived = {key: each for key, each in self._derived.items() if key[1] in tokens}
        while len(self._derived) >= MAX_TOKEN_CREDENTIALS:
            del self._derived[next(iter(self._derived))]

        def derive() -> None:
            self._derived[mechanism, token_id] = self._credential(mechanism, token_id)

        return derive

    def _valid(self, token_id: str) -> DelegationToken | None:
        token = self._image().tokens.get(token_id)
        if token is None or min(token.expiration_timestamp, token.max_timestamp) < self._now_ms():
            return None
        return token

    def _credential(self, mechanism: str, token_id: str) -> ScramCredential:
        hash_name, salt = SCRAM_HASHES[mechanism], secrets.token_bytes(_SALT_BYTES)
        password = self._key.password(token_id).encode()
        keys = derive_keys(hash_name, hashlib.pbkdf2_hmac(hash_name, password, salt, MIN_ITERATIONS))
        return ScramCredential(salt, keys.stored_key, keys.server_key, MIN_ITERATIONS)
