"""All connections of one node to the others, what they share, and which nodes are known to be dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.counters import NodeCounters
from ottla.net.connecting import Connect, ConnectFailed, connect_socket
from ottla.net.peer import SocketPeer
from ottla.net.response_protocol import SCRATCH_BYTES
from ottla.peers import Endpoint, PeerFailure

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.security.listener_security import ClientSecurity

_GONE_FOR_S: Final = 2.0
"""A node counts as dead for this long after it refused a connection; by then the controller has noticed."""
_LOOK_AGAIN_S: Final = 0.005
_PROBE_S: Final = 0.2


class PeerSettings(msgspec.Struct, frozen=True):
    """The settings of connections to other nodes."""

    setup_timeout_s: float = 10.0
    """For the connection and the other node's ApiVersions response."""
    first_pause_s: float = 0.05
    """Before the second retry; the first one is immediate. Doubles from there ..."""
    longest_pause_s: float = 1.0
    """... up to this."""
    max_answer_bytes: int = 100 << 20


class _Probe(asyncio.Protocol):
    """Connects only to see whether a process listens."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


class SocketPeers:
    """All connections of one node to the others. Implements `ottla.peers.Peers`."""

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        settings: PeerSettings,
        connect: Connect = connect_socket,
        security: Callable[[str], ClientSecurity | None] = lambda purpose: None,
        counters: NodeCounters | None = None,
    ) -> None:
        """`security` says how connections for a purpose are secured; None for plain text."""
        self.counters = counters or NodeCounters()
        self._connect = connect
        self._security = security
        self.clock = clock
        self.loop = loop
        self.node_id = node_id
        self.settings = settings
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._open: dict[SocketPeer, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[int, float] = {}
        """Nodes that refused a connection, and when."""
        self._closed = False

    def gone(self) -> Collection[int]:
        if not self._refused:
            return ()
        since = self.clock.monotonic() - _GONE_FOR_S
        self._refused = {node_id: at for node_id, at in self._refused.items() if at > since}
        return self._refused.keys()

    def refused(self, endpoint: Endpoint) -> None:
        """Record that no process listens there."""
        if endpoint.node_id >= 0:
            self._refused[endpoint.node_id] = self.clock.monotonic()

    def answered(self, endpoint: Endpoint) -> None:
        """Record that a process listens there."""
        self._refused.pop(endpoint.node_id, None)

    def look_after(self, endpoint: Endpoint, looks: int = 3) -> None:
        """A connection was lost: check at once whether the process is dead, so that clients are not sent there.

        A process that exits closes its sockets one after the other, so it can still accept connections for a moment.
        """

        def looked(failure: PeerFailure | None) -> None:
            if failure is PeerFailure.REFUSED:
                self.refused(endpoint)
            elif failure is None and looks > 1:
                self.clock.call_later(_LOOK_AGAIN_S, self.look_after, endpoint, looks - 1)
            else:
                self.answered(endpoint)

        if not self._closed:
            # Assume the worst until the operating system has answered.
            self.refused(endpoint)
            self.probe(endpoint, looked, timeout_s=_PROBE_S)

    def open(self, endpoint: Endpoint, purpose: str) -> SocketPeer:
        peer = SocketPeer(self, endpoint, purpose, self._security(purpose))
        if self._closed:
            peer.close()
        else:
            self._open[peer] = None
        return peer

    def probe(
        self, endpoint: Endpoint, done: Callable[[PeerFailure | None], object], *, timeout_s: float
    ) -> None:
        async def look() -> None:
            failure = None
            probe = _Probe()
            try:
                await self.connect(lambda: probe, endpoint.host, endpoint.port, timeout_s)
            except ConnectFailed as failed:
                failure = failed.failure
            if probe.transport is not None:
                probe.transport.close()
            if not self._closed:
                done(failure)

        self.spawn(look())

    async def connect(
        self, new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, timeout_s: float
    ) -> None:
        """Connect within this time; raises ConnectFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect(new_protocol, host, port)
        except TimeoutError:
            raise ConnectFailed(PeerFailure.UNREACHABLE, f"no connection within {timeout_s:g} s") from None
        except ConnectionRefusedError as error:
            raise ConnectFailed(PeerFailure.REFUSED, str(error)) from None
        except OSError as error:
            raise ConnectFailed(PeerFailure.UNREACHABLE, str(error)) from None

    def spawn(self, work: Coroutine[object, None, None]) -> asyncio.Task[None]:
        """Run a task that ends by itself. The loop's exception handler reports its failure."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def forget(self, peer: SocketPeer) -> None:
        self._open.pop(peer, None)

    async def close(self) -> None:
        """Close every connection; later requests fail."""
        self._closed = True
        for peer in list(self._open):
            peer.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
