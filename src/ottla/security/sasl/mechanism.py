"""What every SASL mechanism has in common on the server's side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ottla.security.principal import Principal


class SaslFailed(Exception):
    """The client is not let in. `message` goes to the client; without one it gets the general sentence.

    The general sentence does not say what was wrong, so that names and passwords cannot be probed. `reason` is for
    the broker's log.
    """

    def __init__(self, message: str | None, reason: str = "") -> None:
        super().__init__(reason or message or "invalid credentials")
        self.message = message


class SaslServer(Protocol):
    """One exchange of one client. `evaluate` takes the client's tokens until `complete`."""

    @property
    def complete(self) -> bool: ...

    @property
    def principal(self) -> Principal:
        """The client, once the exchange is complete."""
        ...

    @property
    def expires_at_ms(self) -> int | None:
        """When the credential ends (epoch); None for one without an end."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """The next challenge or the closing token. Raises SaslFailed."""
        ...


@runtime_checkable
class NeedsPreparation(Protocol):
    """A mechanism with work that must not run on the event loop."""

    def preparation(self, token: bytes) -> Callable[[], None] | None:
        """What has to be done in a thread before `evaluate` can take this token; None where nothing has."""
        ...


NewServer = Callable[[], SaslServer]
"""Begins an exchange of one mechanism."""
