"""How the brokers of the cluster are reached: their endpoints by listener, and connections that follow the metadata."""

from __future__ import annotations

from collections.abc import Callable

from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.peers import Endpoint, Peer, Peers


def broker_endpoint(image: MetadataImage, broker_id: int, listener_name: str) -> Endpoint | None:
    """Where a broker listens under a listener's name; None when it is not registered, or not there."""
    registration = image.brokers.get(broker_id)
    listener = None if registration is None else registration.listeners.get(listener_name)
    return None if listener is None else Endpoint(broker_id, listener.host, listener.port)


def leader_of(image: MetadataImage, topic: str, partition: int) -> int:
    """The broker that leads a partition; NO_LEADER when nobody does, or there is no such partition."""
    found = image.topics.by_name.get(topic)
    registration = None if found is None else found.partitions.get(partition)
    return NO_LEADER if registration is None else registration.leader


class BrokerPeers:
    """Connections for one purpose, one to each broker that is spoken to, at the address it has registered last."""

    __slots__ = ("_by_broker", "_image", "_listener_name", "_peers", "_purpose")

    def __init__(
        self, peers: Peers, purpose: str, image: Callable[[], MetadataImage], listener_name: str
    ) -> None:
        """`listener_name` is `inter.broker.listener.name`."""
        self._peers = peers
        self._purpose = purpose
        self._image = image
        self._listener_name = listener_name
        self._by_broker: dict[int, Peer] = {}

    def to(self, broker_id: int) -> Peer | None:
        """The connection to a broker; None where the metadata does not know how to reach it."""
        endpoint = broker_endpoint(self._image(), broker_id, self._listener_name)
        peer = self._by_broker.get(broker_id)
        if peer is not None and peer.endpoint != endpoint:
            del self._by_broker[broker_id]
            peer.close()
            peer = None
        if peer is None and endpoint is not None:
            peer = self._by_broker[broker_id] = self._peers.open(endpoint, self._purpose)
        return peer

    def close(self) -> None:
        """Let go of all of them; what waits for an answer fails."""
        while self._by_broker:
            self._by_broker.popitem()[1].close()
