"""The network between simulated processes: TCP as programs see it, with links that are slow, cut or broken.

Bytes of one connection arrive in order or not at all. What a program can observe of loss, duplication and reordering
in TCP is here: delays, connections that break while data is under way (which may or may not have arrived), answers
that come after the asker gave up, silence in one direction or both.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ottla.clock import Args
from ottla.testing.sim.loop import SimLoop, current_process
from ottla.testing.sim.process import Process
from ottla.wire.primitives import Buffer

Proto = TypeVar("Proto", bound=asyncio.BaseProtocol)

_CONNECT_TIMEOUT_S: Final = 75.0
"""When an operating system gives up connecting to a silent address."""

_GIVE_UP_S: Final = 900.0
"""When it gives up on unacknowledged bytes."""

_HIGH_WATER: Final = 64 << 10

FIRST_CLIENT_PORT: Final = 40_000
"""Servers listen on lower ports."""

Address = tuple[str, int]
Accept = Callable[["Transport"], None]


@dataclass(slots=True)
class Link:
    """One direction between two hosts."""

    base_s: float = 0.0002
    jitter_s: float = 0.0003
    spike: float = 0.0
    """The share of chunks that take up to `spike_s` longer."""
    spike_s: float = 0.2
    cut: bool = False

    def delay(self, rng: random.Random) -> float:
        delay = self.base_s + rng.random() * self.jitter_s
        if self.spike and rng.random() < self.spike:
            delay += rng.random() * self.spike_s
        return delay


class _Chunk(NamedTuple):
    since: float
    due: float
    data: bytes | None
    """None is the end of the stream."""
    reset: bool


class Transport(asyncio.Transport):
    """One end of a connection. `peer` is the other one."""

    def __init__(self, network: Network, process: Process | None, local: Address, remote: Address) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.local = local
        self.remote = remote
        self.link = network.link(local[0], remote[0])
        self.peer: Transport
        self._protocol: asyncio.BaseProtocol | None = None
        self._inbox: deque[bytes | None] = deque()
        """Received data that is not read yet; None is the end of the stream."""
        self._reading = True
        self.closing = False
        self.lost = False
        self.outbox: deque[_Chunk] = deque()
        """Sent data that has not arrived yet."""
        self._unread = 0
        """Bytes sent that the other end has not read."""
        self._high = _HIGH_WATER
        self._write_paused = False

    # -- what the protocol calls

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": self.remote, "sockname": self.local}.get(name, default)

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unread

    def write(self, data: Buffer) -> None:
        self._send(bytes(data))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._send(b"".join(list_of_data))

    def _send(self, data: bytes) -> None:
        if self.closing or self.lost or not data:
            return
        self._unread += len(data)
        self._network.carry(self, data)
        if self._unread > self._high and not self._write_paused:
            self._write_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._network.loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._reading

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._network.carry(self, None)
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    # -- what the network calls

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection is open for this end's process."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._network.loop.call_soon(self._read)

    def arrived(self, data: bytes | None) -> None:
        if not self.lost:
            self._inbox.append(data)
            if self._protocol is not None:
                self._read()

    def _read(self) -> None:
        inbox = self._inbox
        while inbox and self._reading and not self.lost and self._protocol is not None:
            data = inbox.popleft()
            if data is None:
                self.closing = True
                self._lose(None)
                return
            self.peer.was_read(len(data))
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)
            return
        assert isinstance(protocol, asyncio.BufferedProtocol)
        view = memoryview(data)
        while view:
            if self.lost or self.closing:
                return
            if not self._reading:
                self._inbox.appendleft(bytes(view))
                return
            room = memoryview(protocol.get_buffer(len(view)))
            size = min(len(room), len(view))
            room[:size] = view[:size]
            protocol.buffer_updated(size)
            view = view[size:]

    def was_read(self, size: int) -> None:
        self._unread -= size
        if self._write_paused and self._unread <= self._high // 4 and not self.lost:
            self._write_paused = False
            if self._protocol is not None and self.process is not None and self.process.alive:
                self._network.run_as(self.process, self._protocol.resume_writing)

    def reset(self) -> None:
        """Reset the connection: the other process died, or the network gave up."""
        if not self.lost:
            self.closing = True
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def reset_as_process(self) -> None:
        if self.process is None:
            self.reset()
        else:
            self._network.run_as(self.process, self.reset)

    def _lose(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = self.closing = True
        self._inbox.clear()
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


class Network:
    """All hosts and connections."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self._random = rng
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[Address, tuple[Process, Accept]] = {}
        self._transports: dict[Transport, None] = {}
        self._ports = FIRST_CLIENT_PORT
        self.on_delivery: Callable[[bytes | None], None] | None = None
        """Called with everything that arrives."""
        self.on_send: Callable[[Transport, bytes | None], None] | None = None
        """Called with everything that is sent, before the network carries it."""
        loop.network = self

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    # -- listening

    def listen(self, process: Process, address: Address, accept: Accept) -> None:
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, f"{address} is taken")
        self._listening[address] = (process, accept)

    def unlisten(self, process: Process, only: Address | None = None) -> None:
        """Free the ports of a process, or one of them."""
        for address in [a for a, (owner, _) in self._listening.items() if owner is process]:
            if only in (None, address):
                del self._listening[address]

    def died(self, process: Process) -> None:
        """Close the connections of a dead process, as an operating system does."""
        self.unlisten(process)
        for transport in list(self._transports):
            if transport.process is process and not transport.lost:
                transport.lost = transport.closing = True
                self.forget(transport)
                self.carry(transport, None, reset=True)

    # -- connecting

    async def connect(
        self, protocol_factory: Callable[[], Proto], host: str, port: int
    ) -> tuple[Transport, Proto]:
        process = current_process()
        source = process.host if process is not None else "outside"
        opened: asyncio.Future[Transport] = self.loop.create_future()
        self._try(opened, process, source, (host, port), self.loop.time())
        transport = await opened
        protocol = protocol_factory()
        transport.open(protocol)
        return transport, protocol

    def _try(
        self,
        opened: asyncio.Future[Transport],
        process: Process | None,
        source: str,
        target: Address,
        since: float,
    ) -> None:
        there, back = self.link(source, target[0]), self.link(target[0], source)
        if opened.cancelled():
            return
        if self.loop.time() - since > _CONNECT_TIMEOUT_S:
            opened.set_exception(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        elif there.cut or back.cut:
            self.loop.call_later(1.0, self._try, opened, process, source, target, since)
        else:
            delay = there.delay(self._random) + back.delay(self._random)
            self.loop.call_later(delay, self._establish, opened, process, source, target)

    def _establish(
        self, opened: asyncio.Future[Transport], process: Process | None, source: str, target: Address
    ) -> None:
        if opened.cancelled():
            return
        if target not in self._listening:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {target}")
            opened.set_exception(refused)
            return
        server, accept = self._listening[target]
        self._ports += 1
        local = (source, self._ports)
        ours = Transport(self, process, local, target)
        theirs = Transport(self, server, target, local)
        ours.peer, theirs.peer = theirs, ours
        self._transports[ours] = self._transports[theirs] = None
        self.run_as(server, accept, theirs)
        opened.set_result(ours)

    # -- carrying

    def carry(self, sender: Transport, data: bytes | None, *, reset: bool = False) -> None:
        """Carry bytes or the end of the stream to the other end, in order, as the link allows."""
        if self.on_send is not None:
            self.on_send(sender, data)
            if sender.lost and data is not None:
                return  # the listener killed the sender
        now = self.loop.time()
        due = now + sender.link.delay(self._random)
        sender.outbox.append(_Chunk(now, due, data, reset))
        if len(sender.outbox) == 1:
            self._pump_at(due, sender)

    def _pump_at(self, due: float, sender: Transport) -> None:
        # Sent data belongs to the network, even if the sender dies.
        self.loop.call_at_as(None, due, self._pump, sender)

    def _pump(self, sender: Transport) -> None:
        outbox, receiver = sender.outbox, sender.peer
        if receiver.lost:
            outbox.clear()
            return
        now, chunk = self.loop.time(), outbox[0]
        if sender.link.cut:
            if now - chunk.since > _GIVE_UP_S:
                outbox.clear()
                sender.reset_as_process()
            else:
                # Retransmitted until it arrives; later data queues behind it.
                self._pump_at(now + 0.2 + self._random.random() * 0.8, sender)
            return
        outbox.popleft()
        if self.on_delivery is not None:
            self.on_delivery(chunk.data)
        self._hand(receiver, chunk.data, chunk.reset)
        if outbox:
            self._pump_at(max(now, outbox[0].due), sender)

    def _hand(self, receiver: Transport, data: bytes | None, reset: bool) -> None:
        if receiver.process is None:
            receiver.reset() if reset else receiver.arrived(data)
        elif reset:
            self.run_as(receiver.process, receiver.reset)
        else:
            self.run_as(receiver.process, receiver.arrived, data)

    def run_as(self, process: Process, callback: Callable[[*Args], object], *args: *Args) -> None:
        """Run a callback as the process: later if it is paused, never if it is dead."""
        self.loop.call_soon_as(process, callback, *args)

    def forget(self, transport: Transport) -> None:
        self._transports.pop(transport, None)

    # -- faults

    def hosts(self) -> Iterator[str]:
        yield from dict.fromkeys(process.host for process, _ in self._listening.values())

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        self.link(source, target).cut = True
        if both:
            self.link(target, source).cut = True

    def heal(self) -> None:
        for link in self._links.values():
            link.cut = False
            link.spike = 0.0

    def break_connections(self, share: float) -> int:
        """Reset a share of all connections, at both ends independently; data in flight may be lost."""
        chosen = [t for t in self._transports if t.process is not None and self._random.random() < share]
        for transport in chosen:
            self.loop.call_later(self._random.random() * 0.05, transport.reset_as_process)
            self.loop.call_later(self._random.random() * 0.05, transport.peer.reset_as_process)
        return len(chosen)
