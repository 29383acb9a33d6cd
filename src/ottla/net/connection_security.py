"""Puts TLS and SASL in front of the connections of one listener, and tells them who their client is."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.net.authenticating import Authenticating
from ottla.net.tls import SCRATCH_BYTES, HandshakeRefused, TlsLayer
from ottla.security.listener_security import ListenerSecurity, NotMapped
from ottla.security.principal import Principal

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.metadata.image import MetadataImage
    from ottla.net.connection import Connection
    from ottla.net.dispatch import Dispatcher
    from ottla.net.entrance import Entrance
    from ottla.security.tokens import TokenCredentials

_logger = logging.getLogger(__name__)


class ConnectionSecurity:
    """One listener's. PLAINTEXT listeners have none."""

    def __init__(
        self,
        security: ListenerSecurity,
        image: Callable[[], MetadataImage],
        dispatcher: Dispatcher,
        clock: Clock,
        max_request_bytes: int,
        entrance: Entrance,
        tokens: TokenCredentials | None = None,
    ) -> None:
        """`image` gives the newest metadata, where SCRAM credentials are; `tokens` those of delegation tokens."""
        self._security = security
        self._image = image
        self._dispatcher = dispatcher
        self._clock = clock
        self._max_request_bytes = max_request_bytes
        self._entrance = entrance
        self._tokens = tokens
        self._scratch = memoryview(bytearray(SCRATCH_BYTES if security.uses_tls else 0))

    def secure(
        self, connection: Connection, call_soon: Callable[[Callable[[], None]], object]
    ) -> asyncio.BaseProtocol:
        """Prepare a new connection, and give the protocol for its socket."""
        security = self._security
        if security.uses_sasl:
            connection.limit_requests(security.max_authentication_bytes)
            waiting = Authenticating(
                security.new_exchange(self._image, self._clock.now_ms, self._tokens),
                self._dispatcher,
                self._clock,
                self._login_failed,
                self._ready,
            )
            connection.dispatcher = waiting
            waiting.start(connection)
        tls = security.tls
        if tls is None:
            return connection

        def shaken(session: ssl.SSLObject) -> None:
            node_ids = security.certificate_nodes(session)
            if node_ids:
                connection.certified(node_ids)
            if security.uses_sasl:
                return
            try:
                principal = str(security.certificate_principal(session))
            except NotMapped as error:
                raise HandshakeRefused(str(error)) from None
            connection.authenticated(principal)
            self._entrance.succeeded(connection, principal, "TLS")

        def failed(why: str) -> float:
            return self._entrance.failed(connection.client, "TLS handshake", why, security.fail_delay_s)

        loop = asyncio.get_running_loop()
        return TlsLayer(
            connection,
            tls.context,
            self._scratch,
            self._clock,
            server_side=True,
            call_soon=call_soon,
            ready=shaken,
            failed=failed,
            turns=self._entrance.turns(call_soon),
            offload=self._entrance.in_thread if tls.material.slow_handshakes else None,
            call_threadsafe=loop.call_soon_threadsafe,
        )

    @property
    def full(self) -> bool:
        """Whether too many connections are still authenticating to accept another one."""
        return self._entrance.full(self._security.name)

    def begin(self, connection: Connection) -> None:
        """A connection of this listener was accepted."""
        self._entrance.begin(connection)

    def gone(self, connection: Connection) -> None:
        """A connection of this listener is closed."""
        self._entrance.end(connection)

    def _login_failed(self, connection: Connection, why: str) -> float:
        return self._entrance.failed(connection.client, "authentication", why, self._security.fail_delay_s)

    def _ready(self, connection: Connection, principal: Principal) -> None:
        connection.limit_requests(self._max_request_bytes)
        connection.authenticated(str(principal), by_token=principal.token_authenticated)
        self._entrance.succeeded(connection, str(principal), "SASL")
