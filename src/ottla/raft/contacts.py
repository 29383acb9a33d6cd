"""The addresses of the other nodes of the quorum, and the connections to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from ottla.ids import BrokerId
from ottla.peers import Endpoint, Peer, PeerFailure, Peers
from ottla.raft.metadata_replica import MetadataReplica
from ottla.raft.requests import LeaderView, NamedEndpoint
from ottla.raft.voters import VoterEndpoint, VoterNode
from ottla.wire.classes import WireRequest, WireResponse

Resp = TypeVar("Resp", bound=WireResponse)

FETCHES: Final = "raft-fetch"
"""Long polls have their own connections: another response behind one would be late."""
VOTES: Final = "raft"

_MAX_PEERS: Final = 64
"""Connections kept; a quorum needs two for each other voter."""


class NodeEndpoint(Protocol):
    """A node's address in a response."""

    node_id: BrokerId
    host: str
    port: int


class Contacts:
    """Connections by address and purpose; addresses by node id, from the last response or else from the voters."""

    def __init__(
        self, replica: MetadataReplica, peers: Peers | None, listener: str, bootstrap: Sequence[Endpoint]
    ) -> None:
        self._replica = replica
        self._peers = peers
        self._listener = listener
        self._bootstrap = tuple(bootstrap)
        self._learned: dict[BrokerId, VoterEndpoint] = {}
        self._open: dict[tuple[str, int, str], Peer] = {}

    @property
    def listener(self) -> str:
        return self._listener

    # Addresses

    def learn(self, node_id: BrokerId, host: str, port: int) -> None:
        """Remember an address that a node has reported for itself or for another."""
        if node_id >= 0 and node_id != self._replica.local.key.id and host:
            self._learned[node_id] = VoterEndpoint(host, port)

    def learn_all(self, endpoints: Iterable[NodeEndpoint]) -> None:
        """Remember the node endpoints of a response."""
        for endpoint in endpoints:
            self.learn(endpoint.node_id, endpoint.host, endpoint.port)

    def learn_leader(self, node_id: BrokerId, endpoints: Iterable[NamedEndpoint]) -> None:
        """Remember the address of a leader, whose requests name all of its listeners."""
        named = {endpoint.name: endpoint for endpoint in endpoints}
        own = named.get(self._listener) or next(iter(named.values()), None)
        if own is not None:
            self.learn(node_id, own.host, own.port)

    def endpoint_of(self, node_id: BrokerId, listener: str = "") -> Endpoint | None:
        """The address of a node's controller listener; None when it is not known."""
        replica = self._replica
        node: VoterNode | None = replica.node.voters.nodes.get(node_id)
        if node_id == replica.local.key.id and replica.local.listeners:
            node = replica.local
        elif node_id in self._learned and (node is None or node_id == replica.node.leader_id):
            # A leader reports its own address; for other nodes the log is the better source.
            return Endpoint(node_id, *self._learned[node_id])
        if node is None or not node.listeners:
            return None
        listeners = node.listeners
        address = listeners.get(listener) or listeners.get(self._listener) or next(iter(listeners.values()))
        return Endpoint(node_id, *address)

    def leader(self, listener: str = "") -> LeaderView:
        """The leader in the form that responses carry."""
        node = self._replica.node
        endpoint = None if node.leader_id is None else self.endpoint_of(node.leader_id, listener)
        return LeaderView(node.leader_id, node.epoch, endpoint)

    def places_to_ask(self) -> list[Endpoint]:
        """Nodes that may know the leader: the bootstrap servers, or else the voters."""
        local = self._replica.local
        own = {tuple(address) for address in local.listeners.values()}
        known = self._bootstrap or tuple(
            endpoint
            for node_id in self._replica.node.voters.nodes
            if (endpoint := self.endpoint_of(node_id)) is not None
        )
        return [e for e in known if e.node_id != local.key.id and (e.host, e.port) not in own]

    # Connections

    def send(
        self,
        endpoint: Endpoint,
        purpose: str,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Callable[[PeerFailure], object],
    ) -> None:
        """Send a request. Exactly one of the callbacks is called, later."""
        timeout_s = self._replica.config.request_timeout_ms / 1000
        peer = self._peer(endpoint, purpose)
        if peer is None:
            self._replica.clock.call_later(0, failed, PeerFailure.CLOSED)
        else:
            peer.send(request, done, failed, timeout_s=timeout_s)

    def probe(self, endpoint: Endpoint, done: Callable[[PeerFailure | None], object]) -> None:
        """Find out whether a process listens at this address."""
        if self._peers is not None:
            self._peers.probe(endpoint, done, timeout_s=self._replica.config.request_timeout_ms / 1000)

    def _peer(self, endpoint: Endpoint, purpose: str) -> Peer | None:
        key = (endpoint.host, endpoint.port, purpose)
        peer = self._open.get(key)
        if peer is None and self._peers is not None:
            while len(self._open) >= _MAX_PEERS:
                self._open.pop(next(iter(self._open))).close()
            peer = self._open[key] = self._peers.open(endpoint, purpose)
        return peer

    def close(self) -> None:
        """Close the fetch connections. The others may carry EndQuorumEpoch; their owner closes them afterwards."""
        self._peers = None
        for (_, _, purpose), peer in self._open.items():
            if purpose == FETCHES:
                peer.close()
        self._open.clear()
