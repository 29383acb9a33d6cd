"""All listeners of a node, and what they share: connection limits, receive buffers, the idle reaper.

Sockets are bound early, so that a port that is in use is found before anything is written. They are opened when the
node can answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ottla.api.registry import supported
from ottla.broker.services import Node
from ottla.clock import Clock
from ottla.config import listeners
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.security_profile import is_strict
from ottla.net.admission import Admission, Limits, ListenerLimits
from ottla.net.buffers import ReceiveBuffers
from ottla.net.busy_poll import BusyPoller, busy_poll
from ottla.net.connection import Connection
from ottla.net.dispatch import Dispatcher
from ottla.net.failed_logins import FailedLogins
from ottla.net.idle import IdleReaper
from ottla.net.listener import Listener, ListenerSettings, bind

if TYPE_CHECKING:
    from ottla.net.connection_security import ConnectionSecurity
    from ottla.net.entrance import Entrance
    from ottla.security.listener_security import ListenerSecurity
    from ottla.security.tls_material import TlsEndpoint

_logger = logging.getLogger(__name__)

_WITHOUT_TLS = (listeners.SecurityProtocol.PLAINTEXT, listeners.SecurityProtocol.SASL_PLAINTEXT)


class ListenerSet:
    """The listeners of one node. Creation binds their sockets (raises `BindError`); `open` starts serving.

    Controller listeners open first, when the node joins the metadata quorum; broker listeners open when the broker
    has loaded its logs. They stop in the reverse order.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sockets: dict[str, list[socket.socket]] = {}
        self._listeners: dict[str, Listener] = {}
        self._buffers = ReceiveBuffers(config.int("queued.max.request.bytes"))
        self._admission = Admission(Limits.of(config), clock.monotonic())
        self._busy_poller: BusyPoller | None = None
        self._reaper = IdleReaper(clock, config.int("connections.max.idle.ms"), self._connections)
        self._failed_logins = FailedLogins()
        self._entrance: Entrance | None = None
        self._security = {
            listener.name: _security(config, listener)
            for listener in config.listeners
            if listener.protocol is not listeners.SecurityProtocol.PLAINTEXT
        }
        if self._security:
            from ottla.net.entrance import Entrance

            self._entrance = Entrance(config, clock, self._failed_logins)
            self._entrance.on_room = self._room
        try:
            for listener in config.listeners:
                self._sockets[listener.name] = bind(listener.host, listener.port)
            for shared in config.bootstrap_listeners:
                if shared.name in self._sockets:
                    self._sockets[shared.name] += bind(shared.host, shared.port, shared=True)
        except OSError:
            self.discard()
            raise

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host as configured (or the address bound to) and real port of each listener by name."""
        found = {}
        for listener in self._config.listeners:
            bound = self._sockets[listener.name][0].getsockname()
            found[listener.name] = (listener.host or str(bound[0]), int(bound[1]))
        return found

    def open(self, node: Node, *, controllers: bool) -> None:
        """Accept connections on the controllers' listeners, or on all others."""
        if self._busy_poller is None:
            self._busy_poller = busy_poll(self._clock.monotonic, asyncio.get_running_loop().call_soon)
        for configured in self._configured(controllers=controllers):
            now = self._clock.monotonic()
            self._admission.add_listener(configured.name, _limits(self._config, configured.name), now)
            apis = supported(on_controller_listener=controllers)
            if is_strict(self._config) and configured.protocol in _WITHOUT_TLS:
                from ottla.api.security.alter_user_scram_credentials import IN_THE_CLEAR

                apis = apis.instead(IN_THE_CLEAR)
            dispatcher = Dispatcher(node, apis, node.gate, node.counters)
            listener = Listener(
                _settings(self._config, configured),
                self._sockets[configured.name],
                dispatcher,
                self._buffers,
                self._admission,
                self._clock,
                self._busy_poller,
                self._secured(configured.name, node, dispatcher),
                node.quotas.ips,
                self._failed_logins,
                node.counters.listener(configured.name),
            )
            listener.on_room = self._room
            self._listeners[configured.name] = listener
            listener.open()
        self._reaper.start()

    def _secured(self, name: str, node: Node, dispatcher: Dispatcher) -> ConnectionSecurity | None:
        security = self._security.get(name)
        if security is None or self._entrance is None:
            return None
        self._entrance.audit = node.audit
        from ottla.net.connection_security import ConnectionSecurity
        from ottla.security.tokens import TokenCredentials

        return ConnectionSecurity(
            security,
            lambda: node.image,
            dispatcher,
            self._clock,
            self._config.int("socket.request.max.bytes"),
            self._entrance,
            None
            if node.token_key is None
            else TokenCredentials(node.token_key, lambda: node.image, self._clock.now_ms),
        )

    def tls_endpoints(self) -> list[TlsEndpoint]:
        """The TLS of the listeners that use it."""
        return [security.tls for security in self._security.values() if security.tls is not None]

    def update(self, config: BrokerConfig) -> None:
        """Apply changed limits and logins; open connections stay."""
        now = self._clock.monotonic()
        self._admission.update(Limits.of(config), now)
        for name in self._listeners:
            self._admission.add_listener(name, _limits(config, name), now)
        for security in self._security.values():
            try:
                security.update(config)
            except ConfigError as error:
                _logger.error("%s. The logins of listener %s stay as they were", error.message, security.name)
        self._room()

    async def stop(self, grace_s: float, *, controllers: bool) -> None:
        """Stop accepting, answer the requests that were taken (for at most `grace_s`), close the connections."""
        going = [
            self._listeners.pop(configured.name)
            for configured in self._configured(controllers=controllers)
            if configured.name in self._listeners
        ]
        if not self._listeners:
            self._reaper.stop()
        await asyncio.gather(*(listener.stop(grace_s) for listener in going))

    def discard(self) -> None:
        """Close the listening sockets."""
        if self._entrance is not None:
            self._entrance.close()
        for sock in chain.from_iterable(self._sockets.values()):
            sock.close()

    def _configured(self, *, controllers: bool) -> tuple[listeners.Listener, ...]:
        return self._config.controller_listeners if controllers else self._config.broker_listeners

    def _connections(self) -> Iterator[Connection]:
        return chain.from_iterable(listener.connections for listener in self._listeners.values())

    def _room(self) -> None:
        # The limit is the broker's: a connection that one listener closes may let another one accept.
        for listener in self._listeners.values():
            listener.resume_accepting()


def _security(config: BrokerConfig, listener: listeners.Listener) -> ListenerSecurity:
    # Loaded where a listener needs it: cryptography takes 50 ms.
    from ottla.security.listener_security import ListenerSecurity

    return ListenerSecurity(config, listener)


def _settings(config: BrokerConfig, listener: listeners.Listener) -> ListenerSettings:
    return ListenerSettings(
        name=listener.name,
        host=listener.host,
        port=listener.port,
        on_controller_listener=listener.name in config.controller_listener_names,
        max_request_bytes=config.int("socket.request.max.bytes"),
        backlog=config.int("socket.listen.backlog.size"),
        send_buffer_bytes=config.int("socket.send.buffer.bytes"),
        receive_buffer_bytes=_receive_buffer_bytes(config),
    )


def _receive_buffer_bytes(config: BrokerConfig) -> int:
    # Kafka's default of 100 kB disables the kernel's auto-tuning and costs throughput: only an explicit setting counts.
    # For sending the default is kept: a small buffer is still in the processor's cache when the reader copies it.
    key = "socket.receive.buffer.bytes"
    return config.int(key) if config.is_set(key) else -1


def _limits(config: BrokerConfig, name: str) -> ListenerLimits:
    prefix = f"listener.name.{name.lower()}."
    unlimited = ListenerLimits()
    connections = config.find_int(prefix + "max.connections")
    rate = config.find_int(prefix + "max.connection.creation.rate")
    return ListenerLimits(
        unlimited.max_connections if connections is None else connections,
        unlimited.max_rate_per_s if rate is None else rate,
    )
