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
    ) -> None:
        """`image` gives the newest metadata, where SCRAM credentials are."""
        self._security = security
        self._image = image
        self._dispatcher = dispatcher
        self._clock = clock
        self._max_request_bytes = max_request_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES if security.uses_tls else 0))

    def secure(
        self, connection: Connection, call_soon: Callable[[Callable[[], None]], object]
    ) -> asyncio.BaseProtocol:
        """Prepare a new connection, and give the protocol for its socket."""
        security = self._security
        if security.uses_sasl:
            connection.limit_requests(security.max_authentication_bytes)
            waiting = Authenticating(
                security.new_exchange(self._image),
                self._dispatcher,
                self._clock,
                security.fail_delay_s,
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
                connection.authenticated(str(security.certificate_principal(session)))
            except NotMapped as error:
                raise HandshakeRefused(str(error)) from None

        def failed(why: str) -> None:
            client = connection.client
            _logger.info(
                "Failed TLS handshake with %s on listener %s: %s",
                client.client_host,
                client.listener_name,
                why,
            )

        return TlsLayer(
            connection,
            tls.context,
            self._scratch,
            self._clock,
            server_side=True,
            call_soon=call_soon,
            ready=shaken,
            failed=failed,
            fail_delay_s=security.fail_delay_s,
        )

    def _ready(self, connection: Connection, principal: Principal) -> None:
        connection.limit_requests(self._max_request_bytes)
        connection.authenticated(str(principal))
