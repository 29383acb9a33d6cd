"""An in-memory network between nodes: `Peers` on a virtual clock, with partitions, delays and dead processes.

Every message is encoded and decoded in the newest version, or the one that a test sets, as on a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from ottla.clock import Args, Clock, Timer
from ottla.peers import Endpoint, PeerFailure, Resp
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode, encode
from ottla.wire.messages import response_class

Respond = Callable[[WireResponse], None]
Handler = Callable[[int, WireRequest[WireResponse], int, Respond], object]
"""Called with the sender's node id, the request, its version, and the callback for the response (now or later)."""


@dataclass(slots=True)
class _Served:
    node_id: int
    handler: Handler
    life: object
    """A new object for each start of the process: connections do not survive a restart."""


class MemoryNetwork:
    """The network of all nodes of a test. Addresses are (host, port); partitions use node ids."""

    def __init__(self, clock: Clock, *, delay_s: float = 0.001) -> None:
        self.clock = clock
        self.delay_s = delay_s
        self.jitter_s = 0.0
        """Up to this much additional random delay for each message."""
        self.max_version: dict[int, int] = {}
        """The highest version by API key, if it is not the newest."""
        self._served: dict[tuple[str, int], _Served] = {}
        self._addresses: dict[int, list[tuple[str, int]]] = {}
        self._cut: set[frozenset[int]] = set()
        self._peers: list[MemoryPeer] = []

    def peers(self, node_id: int) -> MemoryPeers:
        """Return the `Peers` of a node."""
        return MemoryPeers(self, node_id)

    def serve(self, endpoint: Endpoint, handler: Handler) -> None:
        """Listen on an endpoint for a node."""
        address = (endpoint.host, endpoint.port)
        self._served[address] = _Served(endpoint.node_id, handler, object())
        self._addresses.setdefault(endpoint.node_id, []).append(address)

    def stop(self, node_id: int) -> None:
        """End the process of a node: its connections are reset, and new ones are refused."""
        for address in self._addresses.pop(node_id, ()):
            self._served.pop(address, None)
        for peer in list(self._peers):
            if peer.sender == node_id:
                peer.close()
            elif not self.is_cut(peer.sender, node_id):
                peer.lost_if_stale()

    def cut(self, one: int, other: int) -> None:
        """Drop all messages between two nodes silently."""
        self._cut.add(frozenset((one, other)))

    def isolate(self, node_id: int, others: range | list[int]) -> None:
        for other in others:
            if other != node_id:
                self.cut(node_id, other)

    def heal(self) -> None:
        """Remove all partitions."""
        self._cut.clear()

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._cut

    def later(self, callback: Callable[[*Args], object], *args: *Args) -> None:
        delay = self.delay_s
        if self.jitter_s:
            delay += self.clock.random.random() * self.jitter_s
        self.clock.call_later(delay, callback, *args)

    def served(self, address: tuple[str, int]) -> _Served | None:
        return self._served.get(address)

    def node_at(self, address: tuple[str, int]) -> int | None:
        """Return the id of the node that listens at an address, or None."""
        found = self._served.get(address)
        return None if found is None else found.node_id

    def add(self, peer: MemoryPeer) -> None:
        self._peers.append(peer)

    def remove(self, peer: MemoryPeer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)


class MemoryPeers:
    """The `Peers` of one node."""

    def __init__(self, network: MemoryNetwork, node_id: int) -> None:
        self._network = network
        self._node_id = node_id

    def open(self, endpoint: Endpoint, purpose: str) -> MemoryPeer:
        peer = MemoryPeer(self._network, self._node_id, endpoint)
        self._network.add(peer)
        return peer

    def gone(self) -> Collection[int]:
        return ()

    def probe(
        self, endpoint: Endpoint, done: Callable[[PeerFailure | None], object], *, timeout_s: float
    ) -> None:
        network = self._network
        if endpoint.node_id >= 0 and network.is_cut(self._node_id, endpoint.node_id):
            network.clock.call_later(timeout_s, done, PeerFailure.UNREACHABLE)
            return

        def look() -> None:
            served = network.served((endpoint.host, endpoint.port))
            done(PeerFailure.REFUSED if served is None else None)

        network.later(look)


class _Sent:
    """A pending request. The first of response, failure and time-out completes it."""

    __slots__ = ("answer", "done", "failed", "over", "timer")

    def __init__(
        self, done: Callable[[WireResponse], object], failed: Callable[[PeerFailure], object]
    ) -> None:
        self.done = done
        self.failed = failed
        self.answer: WireResponse | None = None
        self.over = False
        self.timer: Timer | None = None

    def fail(self, why: PeerFailure) -> None:
        if not self.over:
            self._end()
            self.failed(why)

    def finish(self, answer: WireResponse) -> None:
        self._end()
        self.done(answer)

    def _end(self) -> None:
        self.over = True
        if self.timer is not None:
            self.timer.cancel()


class MemoryPeer:
    """A connection. Responses come in the order of the requests; a time-out breaks it, like a real connection."""

    def __init__(self, network: MemoryNetwork, sender: int, endpoint: Endpoint) -> None:
        self.sender = sender
        self._network = network
        self._endpoint = endpoint
        self._life: object | None = None
        self._sent: deque[_Sent] = deque()
        self._on_disconnect: Callable[[PeerFailure], object] | None = None
        self._closed = False

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def on_disconnect(self, callback: Callable[[PeerFailure], object] | None) -> None:
        self._on_disconnect = callback

    def close(self) -> None:
        self._closed = True
        self._network.remove(self)
        self._fail_all(PeerFailure.CLOSED)

    def send(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Callable[[PeerFailure], object],
        *,
        timeout_s: float,
        max_version: int | None = None,
    ) -> None:
        sent = _Sent(cast("Callable[[WireResponse], object]", done), failed)
        network = self._network
        if self._closed:
            network.clock.call_later(0, sent.fail, PeerFailure.CLOSED)
            return
        version = min(
            network.max_version.get(request.API_KEY, request.MAX_VERSION),
            request.MAX_VERSION if max_version is None else max_version,
        )
        self._sent.append(sent)
        sent.timer = network.clock.call_later(timeout_s, self._timed_out, sent)
        network.later(self._arrive, sent, type(request), encode(request, version), version)

    def lost_if_stale(self) -> None:
        """Report the loss if the process at the other end has ended."""
        if self._life is not None and not self._is_live():
            self._life = None
            self._network.later(self._lost)

    def _lost(self) -> None:
        self._fail_all(PeerFailure.DISCONNECTED)
        if self._on_disconnect is not None and not self._closed:
            self._on_disconnect(PeerFailure.DISCONNECTED)

    def _is_live(self) -> bool:
        served = self._network.served((self._endpoint.host, self._endpoint.port))
        return served is not None and served.life is self._life

    def _cut(self) -> bool:
        address = (self._endpoint.host, self._endpoint.port)
        node_id = self._endpoint.node_id if self._endpoint.node_id >= 0 else self._network.node_at(address)
        return node_id is not None and self._network.is_cut(self.sender, node_id)

    def _arrive(self, sent: _Sent, cls: type[WireRequest[WireResponse]], frame: bytes, version: int) -> None:
        if sent.over or self._closed or self._cut():
            return
        served = self._network.served((self._endpoint.host, self._endpoint.port))
        if served is None:
            self._settle(sent, PeerFailure.REFUSED if self._life is None else PeerFailure.DISCONNECTED)
            self._life = None
            return
        if self._life is not None and self._life is not served.life:
            # A restarted process does not know the old connection: it was reset.
            self._life = served.life
            self._settle(sent, PeerFailure.DISCONNECTED)
            return
        self._life = life = served.life

        def respond(answer: WireResponse) -> None:
            answered = encode(answer, version)
            self._network.later(self._answered, sent, cls.API_KEY, answered, version, life)

        served.handler(self.sender, decode(cls, version, frame), version, respond)

    def _answered(self, sent: _Sent, api_key: int, frame: bytes, version: int, life: object) -> None:
        if sent.over or self._closed or self._cut() or self._life is not life:
            return
        sent.answer = decode(response_class(api_key), version, frame)
        while self._sent and (self._sent[0].over or self._sent[0].answer is not None):
            first = self._sent.popleft()
            if not first.over and first.answer is not None:
                first.finish(first.answer)

    def _settle(self, sent: _Sent, why: PeerFailure) -> None:
        if sent in self._sent:
            self._sent.remove(sent)
        sent.fail(why)

    def _timed_out(self, sent: _Sent) -> None:
        if not sent.over:
            self._settle(sent, PeerFailure.TIMED_OUT)

    def _fail_all(self, why: PeerFailure) -> None:
        waiting, self._sent = self._sent, deque()
        for sent in waiting:
            self._network.clock.call_later(0, sent.fail, why)
