"""The states of a connection that authenticates by SASL, without the bytes on the wire.

    INITIAL ─ApiVersions─▶ VERSIONS_KNOWN ─SaslHandshake─▶ TOKENS ─last token─▶ READY
       └───────────────SaslHandshake────────────────────────▲            │ SaslHandshake, session with an end
                                                            └────────────┘ (re-authentication, KIP-368)

A handshake for re-authentication that names another mechanism is answered as usual; the next frame ends the
connection (BAD_MECHANISM). Everything that is not drawn here is `IllegalState`, and the connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from ottla.security.principal import Principal
from ottla.security.sasl.mechanism import NeedsPreparation, NewServer, SaslFailed, SaslServer

_MIN_BETWEEN_REAUTHENTICATIONS_S: Final = 1.0


class State(Enum):
    INITIAL = auto()
    VERSIONS_KNOWN = auto()
    TOKENS = auto()
    READY = auto()
    BAD_MECHANISM = auto()
    FAILED = auto()


class IllegalState(Exception):
    """The client sent something that does not fit the state: the connection is closed without an answer."""


class UnsupportedMechanism(Exception):
    """The client names a mechanism that this listener does not have."""


class SaslExchange:
    """One connection's way in, and again in when its session has an end."""

    __slots__ = (
        "_authenticated_at",
        "_max_reauth_ms",
        "_mechanisms",
        "_previous",
        "_server",
        "bare_tokens",
        "expires_at",
        "mechanism",
        "principal",
        "state",
    )

    def __init__(self, mechanisms: Mapping[str, NewServer], max_reauth_ms: Callable[[str], int]) -> None:
        """`max_reauth_ms` is `connections.max.reauth.ms` of a mechanism; 0 for no end."""
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._server: SaslServer | None = None
        self._previous: Principal | None = None
        """Who authenticated before, while re-authenticating."""
        self._authenticated_at = 0.0
        self.state = State.INITIAL
        self.mechanism = ""
        self.bare_tokens = False
        """After SaslHandshake version 0 tokens come without a Kafka header."""
        self.principal: Principal | None = None
        self.expires_at: float | None = None
        """On the monotonic clock; None for a session without an end."""

    @property
    def mechanisms(self) -> list[str]:
        """The enabled mechanisms, for the answer to SaslHandshake."""
        return list(self._mechanisms)

    def versions_answered(self) -> None:
        """ApiVersions came, and its answer lists the versions."""
        if self.state is not State.INITIAL:
            raise IllegalState("ApiVersions came twice or after SaslHandshake")
        self.state = State.VERSIONS_KNOWN

    def expired(self, now: float) -> bool:
        """Whether the session has ended: any request but a SaslHandshake closes the connection."""
        return self.expires_at is not None and now >= self.expires_at

    def may_reauthenticate(self, now: float) -> bool:
        """Whether a SaslHandshake on a ready connection begins a re-authentication."""
        return (
            self.state is State.READY
            and self.expires_at is not None
            and now - self._authenticated_at >= _MIN_BETWEEN_REAUTHENTICATIONS_S
        )

    def handshake(self, mechanism: str, version: int) -> None:
        """SaslHandshake. Raises UnsupportedMechanism or IllegalState."""
        if self.state not in (State.INITIAL, State.VERSIONS_KNOWN, State.READY):
            raise IllegalState(f"SaslHandshake came in state {self.state.name}")
        new_server = self._mechanisms.get(mechanism)
        if new_server is None:
            self.state = State.FAILED
            raise UnsupportedMechanism(mechanism)
        if self.state is State.READY:
            self._previous = self.principal
            if mechanism != self.mechanism:
                self.state = State.BAD_MECHANISM
                return
        self.mechanism = mechanism
        self.bare_tokens = version == 0
        self._server = new_server()
        self.state = State.TOKENS

    def preparation(self, token: bytes) -> Callable[[], None] | None:
        """What has to be done in a thread before `token` can take this token; None where nothing has."""
        server = self._server
        if self.state is State.TOKENS and isinstance(server, NeedsPreparation):
            return server.preparation(token)
        return None

    def token(self, token: bytes, now: float, now_ms: int) -> tuple[bytes, int]:
        """The answer to a client's token, and the lifetime of the session in ms once it is complete, else 0.

        Raises SaslFailed with the sentence for the client.
        """
        if self.state is not State.TOKENS or self._server is None:
            raise IllegalState(f"a SASL token came in state {self.state.name}")
        server = self._server
        try:
            answer = server.evaluate(token)
            if not server.complete:
                return answer, 0
            if self._previous is not None and self._previous != server.principal:
                raise SaslFailed(
                    "Cannot change principals during re-authentication from "
                    f"{_dotted(self._previous)}: {_dotted(server.principal)}"
                )
        except SaslFailed as failed:
            self.state = State.FAILED
            if failed.message is not None:
                raise
            doing = "authentication" if self._previous is None else "re-authentication"
            raise SaslFailed(
                f"Authentication failed during {doing} due to invalid credentials with SASL mechanism "
                f"{self.mechanism}",
                str(failed),
            ) from None
        self._server, self._previous = None, None
        self.principal = server.principal
        self._authenticated_at = now
        self.state = State.READY
        lifetime_ms = self._lifetime_ms(server.expires_at_ms, now_ms)
        self.expires_at = None if lifetime_ms is None else now + lifetime_ms / 1000
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, expires_at_ms: int | None, now_ms: int) -> int | None:
        limits = []
        if expires_at_ms is not None:
            limits.append(max(expires_at_ms - now_ms, 0))
        longest = self._max_reauth_ms(self.mechanism)
        if longest > 0:
            limits.append(longest)
        return min(limits) if limits else None


def _dotted(principal: Principal) -> str:
    return f"{principal.type}.{principal.name}"
