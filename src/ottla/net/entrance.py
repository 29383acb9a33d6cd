"""What the listeners of a node share about clients that are not in yet: their number, their failures, their handshakes.

A failure waits before it is answered, gets at most one sentence a minute and address, and goes to the audit file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.net.failed_logins import FailedLogins
from ottla.net.handshake_turns import HandshakeTurns
from ottla.net.newcomers import Newcomers, max_unauthenticated
from ottla.security.grants import printable

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.net.connection import ClientInfo, Connection
    from ottla.security.audit import AuditFile

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_HANDSHAKE_THREADS: Final = 2
"""For keys whose handshakes are too slow for the event loop; few, so that the loop keeps its core."""


class Entrance:
    """One node's."""

    def __init__(self, config: BrokerConfig, clock: Clock, failures: FailedLogins) -> None:
        """Raises ConfigError."""
        self._clock = clock
        self._failures = failures
        self._exempt = config.inter_broker_listener_name
        self.newcomers = Newcomers(max_unauthenticated(config))
        self.audit: AuditFile | None = None
        self.on_room: Callable[[], object] = lambda: None
        """Called when a listener that had to wait may accept again."""
        self._turns: HandshakeTurns | None = None
        self._threads: Executor | None = None

    def full(self, listener: str) -> bool:
        """Whether a listener with authentication must not accept another connection now."""
        return listener != self._exempt and self.newcomers.full

    def begin(self, connection: Connection) -> None:
        """A connection that has to authenticate was accepted."""
        if connection.client.listener_name != self._exempt:
            self.newcomers.enter(connection)

    def end(self, connection: Connection) -> None:
        """It has authenticated, or is gone."""
        if self.newcomers.leave(connection):
            self.on_room()

    def succeeded(self, connection: Connection, principal: str, how: str) -> None:
        """The client has authenticated."""
        self.end(connection)
        if self.audit is not None:
            client = connection.client
            self.audit.event("authenticated", {"principal": principal, "mechanism": how, **_where(client)})

    def failed(self, client: ClientInfo, what: str, why: str, base_delay_s: float) -> float:
        """The client has failed. Returns the seconds to wait before it hears that."""
        now = self._clock.monotonic()
        self.log(client, f"Failed {what} with {client.client_host} on listener {client.listener_name}: {why}")
        if self.audit is not None:
            self.audit.event("authentication failed", {"what": what, "why": printable(why), **_where(client)})
        return self._failures.delay(client.client_host, base_delay_s, now)

    def log(self, client: ClientInfo, sentence: str) -> None:
        """At most one sentence a minute and address; the next one says how many were left out. All are at DEBUG."""
        left_out = self._failures.worth_logging(client.client_host, self._clock.monotonic())
        if left_out is None:
            _logger.debug("%s", sentence)
        else:
            more = f" (and {left_out} more of this address since its last line)" if left_out else ""
            _logger.info("%s%s", sentence, more)

    def turns(self, call_soon: Callable[[Callable[[], None]], object]) -> HandshakeTurns:
        if self._turns is None:
            self._turns = HandshakeTurns(call_soon)
        return self._turns

    def in_thread(self, work: Callable[[], T], done: Callable[[Future[T]], object]) -> None:
        """Run a slow step of a handshake. `done` is called in the thread."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_HANDSHAKE_THREADS, thread_name_prefix="ottla-tls")
        self._threads.submit(work).add_done_callback(done)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


def _where(client: ClientInfo) -> dict[str, str]:
    return {"host": client.client_host, "listener": client.listener_name}
