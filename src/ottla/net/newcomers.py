"""Connections that have not authenticated yet, over all listeners: a bounded number, beyond which others wait.

They wait in the listen queue, so that a flood of half-open logins cannot take the connections of those who are in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError
from ottla.net.admission import Limits

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.net.connection import Connection

KEY: Final = "ottla.max.unauthenticated.connections"


def max_unauthenticated(config: BrokerConfig) -> int:
    """The setting; a quarter of `max.connections` without one. Raises ConfigError."""
    text = config.static.get(KEY, "").strip()
    if not text:
        return max(1, Limits.of(config).max_connections // 4)
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ConfigError.bad_value(KEY, text, "a number of at least 1")
    return int(text)


class Newcomers:
    """One node's. Connections of the inter-broker listener are not counted: nodes must always come in."""

    __slots__ = ("_waiting", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: set[Connection] = set()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.limit

    def enter(self, connection: Connection) -> None:
        self._waiting.add(connection)

    def leave(self, connection: Connection) -> bool:
        """It has authenticated, or is gone. True if others have waited for that."""
        was_full = self.full
        self._waiting.discard(connection)
        return was_full and not self.full
