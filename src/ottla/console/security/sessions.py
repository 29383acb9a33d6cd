"""Sessions: who is signed in, kept by the server; the token that changes need; and slow sign-in for guessers."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.console.security.roles import EVERYTHING, Principal
from ottla.console.security.users import Users

LASTS_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 10_000
MAX_TRIES: Final = 5
TRIES_WITHIN_S: Final = 60.0
MAX_TRACKED: Final = 10_000
COOKIE: Final = "__Host-ottla"
PLAIN_COOKIE: Final = "ottla"


@dataclass(slots=True)
class Session:
    """A signed-in user."""

    principal: Principal
    expires_s: float
    key: str = field(repr=False)


@dataclass(slots=True)
class Sessions:
    """All sessions. Without users everybody is the local user."""

    users: Users | None
    read_only: bool = False
    needed: bool = False
    """Whether everybody signs in although there is no file of users: the cluster knows them."""
    clock: Callable[[], float] = time.monotonic
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _by_key: OrderedDict[str, Session] = field(default_factory=OrderedDict, repr=False)
    _tries: OrderedDict[str, list[float]] = field(default_factory=OrderedDict, repr=False)

    @property
    def asks(self) -> bool:
        """Whether people sign in."""
        return self.users is not None or self.needed

    def open(self, principal: Principal) -> str:
        """A new session's key, for the cookie. A key that came with the request is never taken over."""
        key = secrets.token_hex(32)
        self._by_key[_digest(key)] = Session(principal, self.clock() + LASTS_S, key)
        while len(self._by_key) > MAX_SESSIONS:
            self._by_key.popitem(last=False)
        return key

    def find(self, key: str | None) -> Principal | None:
        """Who a cookie stands for."""
        if not self.asks:
            return Principal("local", (EVERYTHING,), self.read_only)
        found = self._by_key.get(_digest(key)) if key else None
        if found is None or found.expires_s < self.clock():
            return None
        return found.principal

    def close(self, key: str | None) -> None:
        if key:
            self._by_key.pop(_digest(key), None)

    def token(self, key: str | None) -> str:
        """The token that forms of a session carry."""
        return hmac.new(self._secret, (key or "local").encode(), hashlib.sha256).hexdigest()

    def token_fits(self, key: str | None, token: str) -> bool:
        return hmac.compare_digest(self.token(key), token)

    # -- sign-in

    def must_wait(self, *sources: str) -> bool:
        """Whether an address or a name has failed too often in the last minute."""
        now = self.clock()
        return any(
            len([each for each in self._tries.get(source, ()) if now - each < TRIES_WITHIN_S]) >= MAX_TRIES
            for source in sources
        )

    def note_failure(self, *sources: str) -> None:
        now = self.clock()
        for source in sources:
            tries = self._tries.pop(source, [])
            self._tries[source] = [each for each in tries if now - each < TRIES_WITHIN_S] + [now]
        while len(self._tries) > MAX_TRACKED:
            self._tries.popitem(last=False)


def _digest(key: str) -> str:
    """Sessions are found by a digest, so that the time of a lookup says nothing about a key."""
    return hashlib.sha256(key.encode()).hexdigest()
