"""The HTTP server of a node: made from `ottla.http.*`, bound before anything is written, opened with the quorum."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError
from ottla.config.listeners import parse_address
from ottla.credentials.secret import Secret
from ottla.net.listener import bind

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metrics.client_metrics import ClientMetrics
    from ottla.metrics.collect import Collector
    from ottla.metrics.http import HttpServer
    from ottla.metrics.routes import Pages
    from ottla.metrics.sources import Sources

LISTEN: Final = "ottla.http.listen"
_LISTENER: Final = "ottla_http"
"""`listener.name.ottla_http.ssl.*` keys come before the plain `ssl.*` ones."""


class HttpEndpoint:
    """Binds at creation, so that a port that is in use refuses the start. Raises ConfigError and `BindError`."""

    def __init__(self, config: BrokerConfig, *, guarded: bool) -> None:
        """`guarded`: there is an authorizer, so that not everyone may see everything."""
        text = config.str(LISTEN)
        address = parse_address(text)
        if address is None:
            raise ConfigError.bad_value(LISTEN, text, "HOST:PORT")
        token = config["ottla.http.token"]
        self.token = token if isinstance(token, Secret) and token.reveal() else None
        if guarded and self.token is None and not _is_loopback(address[0]):
            raise ConfigError(
                f"With an authorizer, {LISTEN} must be a loopback address such as localhost:{address[1]}, or needs "
                "ottla.http.token: metrics show the names of topics, groups and clients",
                key=LISTEN,
            )
        self._tls = _tls(config) if config.bool("ottla.http.ssl") else None
        self._sockets: list[socket.socket] = bind(*address)
        self._server: HttpServer | None = None
        self._pages: Pages | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self, sources: Sources, collector: Collector, clients: ClientMetrics) -> None:
        """Serve."""
        from ottla.metrics.http import HttpServer
        from ottla.metrics.routes import Pages

        node = sources.node
        self._pages = Pages(collector, clients, sources, node.executor)
        self._server = HttpServer(self._sockets, self._pages.site(self.token), node.clock, self._tls)
        await self._server.start()

    async def close(self) -> None:
        """Stop serving, and release the address."""
        if self._pages is not None:
            self._pages.stop()
        if self._server is not None:
            await self._server.stop()
        for sock in self._sockets:
            sock.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    from ottla.credentials.contexts import TlsConfig, server_context
    from ottla.security.tls_material import listener_keys

    try:
        return server_context(TlsConfig.of(listener_keys(config, _LISTENER)), datetime.now(UTC))[0]
    except ValueError as error:
        raise ConfigError(f"ottla.http.ssl=true cannot be used: {error}", key="ottla.http.ssl") from None
