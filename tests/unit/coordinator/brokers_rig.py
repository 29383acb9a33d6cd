"""Several brokers in the metadata, and an in-memory network between them: for what coordinators ask of each other."""

from __future__ import annotations

from typing import Any

from ottla.metadata.endpoints import broker_endpoint
from ottla.metadata.image import (
    BrokerRegistration,
    ListenerEndpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from ottla.peers import BrokerPeers, Endpoint
from ottla.testing.memory_peers import MemoryNetwork, Respond
from ottla.testing.virtual_clock import VirtualClock

HERE = 1
LISTENER = "INTERNAL"


class Brokers:
    """This broker (1) and others. What the others are sent is kept until a test answers it."""

    def __init__(self, *others: int) -> None:
        self.clock = VirtualClock()
        self.network = MemoryNetwork(self.clock)
        self.sent: list[tuple[int, Any, Respond]] = []
        self.image = MetadataImage(brokers={each: _registration(each) for each in (HERE, *others)})
        for each in others:
            self.serve(each)

    def serve(self, broker: int) -> None:
        self.network.serve(
            Endpoint(broker, f"broker{broker}", 9092),
            lambda sender, request, version, respond: self.sent.append((broker, request, respond)),
        )

    def lead(self, topic: str, *leaders: int) -> None:
        """The leaders of the partitions of a topic."""
        partitions = {
            index: PartitionRegistration((leader,), (bytes(16),), (leader,), leader, 0, 0)
            for index, leader in enumerate(leaders)
        }
        image = TopicImage(topic.encode().ljust(16), topic, partitions)
        by_name = {**self.image.topics.by_name, topic: image}
        self.image = MetadataImage(
            brokers=self.image.brokers,
            topics=TopicsImage(by_name, {each.id: each for each in by_name.values()}),
        )

    def peers(self) -> BrokerPeers:
        return BrokerPeers(
            self.network.peers(HERE),
            "test",
            lambda broker_id: broker_endpoint(self.image, broker_id, LISTENER),
        )

    def take(self) -> tuple[int, Any, Respond]:
        """The one request that was sent since."""
        self.clock.advance_ms(5)
        (one,) = self.sent
        self.sent.clear()
        return one

    def settle(self) -> None:
        self.clock.advance_ms(5)


def _registration(broker: int) -> BrokerRegistration:
    listeners = {
        LISTENER: ListenerEndpoint(LISTENER, f"broker{broker}", 9092, 0),
        "CLIENTS": ListenerEndpoint("CLIENTS", "elsewhere", 1, 0),
    }
    return BrokerRegistration(broker, 1, bytes(16), listeners, {}, None, False, False, ())
