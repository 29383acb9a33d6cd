"""A node's front on the simulated network: real connections and dispatchers, no sockets."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import Connection, Peer
from ottla.testing.sim.network import Network, Transport
from ottla.testing.sim.process import Process

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.net.dispatch import Dispatcher


class SimFront:
    """In the place of `ottla.net.front.Front`. A port that is bound and not open refuses, as the real one does."""

    def __init__(self, config: BrokerConfig, clock: Clock, network: Network, process: Process) -> None:
        self._config = config
        self._clock = clock
        self._network = network
        self._process = process
        self._connections: dict[Connection, None] = {}
        self._ids = itertools.count(1)
        self._all_gone: asyncio.Event | None = None

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        return {listener.name: (listener.host, listener.port) for listener in self._config.listeners}

    def serve(self, name: str, dispatcher: Dispatcher) -> None:
        """Accept connections on a listener."""
        listener = next(each for each in self._config.listeners if each.name == name)
        buffers = ReceiveBuffers(self._config.int("queued.max.request.bytes"))

        def accept(transport: Transport) -> None:
            host, port = transport.remote
            peer = Peer(
                connection_id=f"{listener.host}:{listener.port}-{host}:{port}-{next(self._ids)}",
                client_host=host,
                local_host=listener.host,
                local_port=listener.port,
                listener_name=name,
                on_controller_listener=name in self._config.controller_listener_names,
            )
            connection = Connection(
                dispatcher,
                buffers,
                self._clock,
                call_soon=self._network.loop.call_soon,
                max_request_bytes=self._config.int("socket.request.max.bytes"),
                peer=peer,
                on_lost=self._lost,
            )
            self._connections[connection] = None
            transport.open(connection)

        self._network.listen(self._process, (listener.host, listener.port), accept)

    def update(self, config: BrokerConfig) -> None:
        """Caps on connections are not simulated."""

    async def stop(self, grace_s: float) -> None:
        self.discard()
        if not self._connections:
            return
        self._all_gone = all_gone = asyncio.Event()
        for connection in list(self._connections):
            connection.finish()
        abort = self._clock.call_later(grace_s, self._abort_all)
        await all_gone.wait()
        abort.cancel()

    def discard(self) -> None:
        self._network.unlisten(self._process)

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _lost(self, connection: Any) -> None:
        self._connections.pop(connection, None)
        if self._all_gone is not None and not self._connections:
            self._all_gone.set()
