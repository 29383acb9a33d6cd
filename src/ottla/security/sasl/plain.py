"""SASL PLAIN (RFC 4616): user names and passwords from the listener's JAAS configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.credentials.secret import Secret
from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.sasl.mechanism import SaslFailed

_USER_PREFIX: Final = "user_"
_NO_USER: Final = Secret("")


def users_of(options: Mapping[str, str]) -> dict[str, Secret]:
    """The users of a `PlainLoginModule` entry: its options `user_<name>="<password>"`."""
    return {
        key.removeprefix(_USER_PREFIX): Secret(value)
        for key, value in options.items()
        if key.startswith(_USER_PREFIX)
    }


class PlainServer:
    """One exchange: a single token."""

    __slots__ = ("_users", "complete", "principal")

    expires_at_ms: None = None

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self._users = users
        self.complete = False
        self.principal: Principal = ANONYMOUS

    def evaluate(self, token: bytes) -> bytes:
        """Check `[authzid] NUL user NUL password`."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise SaslFailed("Authentication failed: username not specified")
        if not password:
            raise SaslFailed("Authentication failed: password not specified")
        # An unknown user takes as long as a wrong password.
        expected = self._users.get(name, _NO_USER)
        if not expected.matches(password) or expected is _NO_USER:
            raise SaslFailed(
                "Authentication failed: Invalid username or password", f"wrong password of {name!r}"
            )
        if authorization_id and authorization_id != name:
            raise SaslFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = user(name)
        self.complete = True
        return b""
