"""The secrets of delegation tokens: each is derived from the cluster's key and the token's id, and kept nowhere."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import TypeVar

from ottla.credentials.secret import Secret

T = TypeVar("T")


class TokenKey:
    """`delegation.token.secret.key`, from which the HMACs of all tokens follow. Every node has the same."""

    __slots__ = ("_hmacs", "_key")

    def __init__(self, key: Secret) -> None:
        self._key = key
        self._hmacs: dict[bytes, str] = {}
        """Token ids by HMAC, of the tokens that were looked for."""

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._key.reveal().encode(), token_id.encode(), "sha512")

    def password(self, token_id: str) -> str:
        """The secret in the form in which clients log in with it."""
        return base64.b64encode(self.hmac(token_id)).decode()

    def find(self, digest: bytes, tokens: Mapping[str, T]) -> T | None:
        """The token with this secret."""
        known = set(self._hmacs.values())
        if known - tokens.keys():
            self._hmacs = {each: token_id for each, token_id in self._hmacs.items() if token_id in tokens}
        for token_id in tokens.keys() - known:
            self._hmacs[self.hmac(token_id)] = token_id
        found = self._hmacs.get(digest)
        return None if found is None else tokens[found]

    def __repr__(self) -> str:
        return "TokenKey()"
