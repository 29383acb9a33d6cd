"""Where the metadata says a broker listens, and which broker leads a partition."""

from __future__ import annotations

from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.peers import Endpoint


def broker_endpoint(image: MetadataImage, broker_id: int, listener_name: str) -> Endpoint | None:
    """Where a broker listens under a listener's name; None when it is not registered, or not there."""
    registration = image.brokers.get(broker_id)
    listener = None if registration is None else registration.listeners.get(listener_name)
    return None if listener is None else Endpoint(broker_id, listener.host, listener.port)


def leader_of(image: MetadataImage, topic: str, partition: int) -> int:
    """The broker that leads a partition; NO_LEADER when it has no leader, or there is no such partition."""
    found = image.topics.by_name.get(topic)
    registration = None if found is None else found.partitions.get(partition)
    return NO_LEADER if registration is None else registration.leader
