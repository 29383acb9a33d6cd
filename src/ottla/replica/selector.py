"""The replica that a consumer should read from: one in its rack, if the broker is configured to look for it.

Kafka's own selector is known by its class name. The leader decides; the consumer follows its hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.ids import BrokerId
    from ottla.metadata.image import MetadataImage
    from ottla.replica.partition import Partition

RACK_AWARE: Final = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "RackAwareReplicaSelector",
)
"""Values of `replica.selector.class` that let consumers read from a replica in their rack."""


def nearer_replica(partition: Partition, image: MetadataImage, rack: str, offset: int) -> BrokerId | None:
    """A follower in the consumer's rack that is in sync and has the offset; None if the leader serves best."""
    if not partition.is_leader or not rack:
        return None
    own = image.brokers.get(partition.leader)
    if own is not None and own.rack == rack:
        return None
    found = [
        follower
        for follower in partition.in_sync.followers.values()
        if follower.id in partition.in_sync.committed
        and follower.start_offset <= offset <= follower.end_offset
        and (broker := image.brokers.get(follower.id)) is not None
        and not broker.fenced
        and broker.rack == rack
    ]
    if not found:
        return None
    return max(found, key=lambda follower: (follower.end_offset, follower.caught_up_ms)).id
