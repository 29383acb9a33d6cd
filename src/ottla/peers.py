"""Connections to the other nodes of the cluster, as the layers below `net` see them.

`net` implements them with sockets, the simulation with an in-memory network.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from ottla.ids import BrokerId
from ottla.wire.classes import WireRequest, WireResponse

Resp = TypeVar("Resp", bound=WireResponse)


class Endpoint(NamedTuple):
    """The address of a node. The id is -1 for a bootstrap address, whose node is not known yet."""

    node_id: int
    host: str
    port: int


class PeerFailure(Enum):
    """Why a request was not answered. Only `REFUSED` proves that no process listens there any more."""

    REFUSED = "the operating system refused the connection: no process listens there"
    UNREACHABLE = "no connection could be made"
    DISCONNECTED = "the connection was lost before the response"
    TIMED_OUT = "no response came in time"
    UNSUPPORTED_VERSION = "the other node and this node support no common version of this request"
    OVERLOADED = "too many requests to that node are waiting"
    BAD_ANSWER = "the response could not be decoded"
    UNAUTHENTICATED = "one of the nodes does not let the other in"
    CLOSED = "this node is closing its connections"


class Peer(Protocol):
    """A connection to one other node. It connects at first use and reconnects as needed, with a growing back-off."""

    @property
    def endpoint(self) -> Endpoint: ...

    def send(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Callable[[PeerFailure], object],
        *,
        timeout_s: float,
        max_version: int | None = None,
    ) -> None:
        """Send in the newest version that both nodes support, at most `max_version`.

        Exactly one callback is called, on the event loop and never before `send` has returned. Requests on one peer are
        sent and answered in order.
        """
        ...

    def on_disconnect(self, callback: Callable[[PeerFailure], object] | None) -> None:
        """Call back when an established connection is lost (at most one listener)."""
        ...

    def close(self) -> None:
        """Close the connection; requests that wait fail with `CLOSED`."""
        ...


class Peers(Protocol):
    """Opens connections to other nodes."""

    def open(self, endpoint: Endpoint, purpose: str) -> Peer:
        """A connection for one caller. `purpose` (heartbeat, raft, fetcher-1...) shows in logs and client ids."""
        ...

    def gone(self) -> Collection[int]:
        """Nodes that have just refused a connection, or lost one and were not tried again yet: probably dead."""
        ...

    def probe(
        self, endpoint: Endpoint, done: Callable[[PeerFailure | None], object], *, timeout_s: float
    ) -> None:
        """Try to connect once and close again: None if something listens there, else why not."""
        ...


class BrokerPeers:
    """Connections for one purpose, one to each broker, at the endpoint that it has registered last."""

    __slots__ = ("_by_broker", "_endpoint_of", "_peers", "_purpose")

    def __init__(
        self, peers: Peers, purpose: str, endpoint_of: Callable[[BrokerId], Endpoint | None]
    ) -> None:
        """`endpoint_of` returns None for a broker that is not registered."""
        self._peers = peers
        self._purpose = purpose
        self._endpoint_of = endpoint_of
        self._by_broker: dict[BrokerId, Peer] = {}

    def to(self, broker_id: BrokerId) -> Peer | None:
        """The connection to a broker; None when the broker is not registered."""
        endpoint = self._endpoint_of(broker_id)
        peer = self._by_broker.get(broker_id)
        if peer is not None and peer.endpoint != endpoint:
            del self._by_broker[broker_id]
            peer.close()
            peer = None
        if peer is None and endpoint is not None:
            peer = self._by_broker[broker_id] = self._peers.open(endpoint, self._purpose)
        return peer

    def close(self) -> None:
        """Close all connections; requests that wait for a response fail."""
        while self._by_broker:
            self._by_broker.popitem()[1].close()
