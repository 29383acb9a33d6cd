"""Lookups in the metadata image: a broker's address, and the leader of a partition."""

from __future__ import annotations

from ottla.ids import BrokerId, TopicName
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.peers import Endpoint


def broker_endpoint(image: MetadataImage, broker_id: BrokerId, listener_name: str) -> Endpoint | None:
    """A broker's address on a listener; None when the broker is not registered or has no such listener."""
    registration = image.brokers.get(broker_id)
    listener = None if registration is None else registration.listeners.get(listener_name)
    return None if listener is None else Endpoint(broker_id, listener.host, listener.port)


def leader_of(image: MetadataImage, topic: TopicName, partition: int) -> BrokerId:
    """The broker that leads a partition; NO_LEADER when it has no leader or does not exist."""
    found = image.topics.by_name.get(topic)
    registration = None if found is None else found.partitions.get(partition)
    return NO_LEADER if registration is None else registration.leader
