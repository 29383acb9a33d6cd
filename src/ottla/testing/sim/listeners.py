"""A node's front on the simulated network: real connections and dispatchers, no sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.api.registry import supported
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.testing.sim.network import Network, Transport
from ottla.testing.sim.process import Process

if TYPE_CHECKING:
    from ottla.broker.services import Node
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener
    from ottla.security.tls_material import TlsEndpoint


class SimListeners:
    """Replaces `ottla.net.endpoints.ListenerSet`. A port that is bound and not open refuses connections."""

    def __init__(self, config: BrokerConfig, clock: Clock, network: Network, process: Process) -> None:
        self._config = config
        self._clock = clock
        self._network = network
        self._process = process
        self._connections: dict[str, dict[Connection, None]] = {}
        self._buffers = ReceiveBuffers(config.int("queued.max.request.bytes"))
        self._ids = itertools.count(1)
        self._all_gone: asyncio.Event | None = None

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        return {listener.name: (listener.host, listener.port) for listener in self._config.listeners}

    def tls_endpoints(self) -> list[TlsEndpoint]:
        """None: the simulated network is plain text."""
        return []

    def open(self, node: Node, *, controllers: bool) -> None:
        for listener in self._configured(controllers=controllers):
            apis = supported(on_controller_listener=controllers)
            dispatcher = Dispatcher(node, apis, node.gate, node.counters)
            self._serve(listener, dispatcher)

    def _configured(self, *, controllers: bool) -> tuple[Listener, ...]:
        return self._config.controller_listeners if controllers else self._config.broker_listeners

    def _serve(self, listener: Listener, dispatcher: Dispatcher) -> None:
        connections: dict[Connection, None] = {}
        self._connections[listener.name] = connections

        def lost(connection: Connection) -> None:
            connections.pop(connection, None)
            if self._all_gone is not None and not connections:
                self._all_gone.set()

        def accept(transport: Transport) -> None:
            host, port = transport.remote
            client = ClientInfo(
                connection_id=f"{listener.host}:{listener.port}-{host}:{port}-{next(self._ids)}",
                client_host=host,
                local_host=listener.host,
                local_port=listener.port,
                listener_name=listener.name,
                on_controller_listener=listener.name in self._config.controller_listener_names,
            )
            connection = Connection(
                dispatcher,
                self._buffers,
                self._clock,
                call_soon=self._network.loop.call_soon,
                max_request_bytes=self._config.int("socket.request.max.bytes"),
                client=client,
                on_lost=lost,
            )
            connections[connection] = None
            transport.open(connection)

        self._network.listen(self._process, (listener.host, listener.port), accept)

    def update(self, config: BrokerConfig) -> None:
        """Caps on connections are not simulated."""

    async def stop(self, grace_s: float, *, controllers: bool) -> None:
        for listener in self._configured(controllers=controllers):
            self._network.unlisten(self._process, (listener.host, listener.port))
            connections = self._connections.get(listener.name, {})
            if connections:
                self._all_gone = all_gone = asyncio.Event()
                for connection in list(connections):
                    connection.finish()
                abort = self._clock.call_later(grace_s, _abort_all, connections)
                await all_gone.wait()
                abort.cancel()

    def discard(self) -> None:
        self._network.unlisten(self._process)


def _abort_all(connections: Iterable[Connection]) -> None:
    for connection in list(connections):
        connection.abort()
