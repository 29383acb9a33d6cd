"""The 64-bit hash of a group's subscribed topics, the same that Kafka computes.

A group gets a new epoch when the hash changes: a topic is created or deleted, or has other partitions or racks.
Consumer, share and streams groups keep the hash in their metadata records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import xxhash

from ottla.ids import BrokerId, TopicName
from ottla.metadata.image import BrokerRegistration, MetadataImage, TopicImage

_MAGIC = b"\x00"
_LONG = struct.Struct("<q")
_INT = struct.Struct("<i")


def topic_hash(topic: TopicImage, brokers: Mapping[BrokerId, BrokerRegistration]) -> int:
    """A hash of a topic's id, name, partitions, and the racks of its replicas."""
    parts = [_MAGIC, topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _INT.pack(len(topic.partitions))]
    for number in range(len(topic.partitions)):
        parts.append(_INT.pack(number))
        for rack in sorted(partition_racks(topic, number, brokers)):
            encoded = _text(rack)
            parts.append(encoded[-_INT.size :])
            parts.append(encoded)
    return _signed(xxhash.xxh3_64_intdigest(b"".join(parts)))


def partition_racks(
    topic: TopicImage, number: int, brokers: Mapping[BrokerId, BrokerRegistration]
) -> list[str]:
    """The racks of the replicas whose brokers have one."""
    racks = []
    for replica in topic.partitions[number].replicas:
        broker = brokers.get(replica)
        if broker is not None and broker.rack is not None:
            racks.append(broker.rack)
    return racks


def group_hash(hashes: Mapping[str, int]) -> int:
    """One hash over the topics' hashes, in the order of their names; 0 when there are none."""
    if not hashes:
        return 0
    # Java sorts strings by UTF-16 units.
    names = sorted(hashes, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(_LONG.pack(hashes[name]) for name in names)))


def metadata_hash(topics: Iterable[TopicName], image: MetadataImage, cache: dict[str, int]) -> int:
    """The hash for a set of subscribed topics; those that do not exist do not count.

    `cache` keeps topic hashes between calls; its owner drops a topic's entry when the topic changes.
    """
    hashes: dict[str, int] = {}
    for name in topics:
        topic = image.topics.by_name.get(name)
        if topic is None:
            continue
        known = cache.get(name)
        if known is None:
            known = cache[name] = topic_hash(topic, image.brokers)
        hashes[name] = known
    return group_hash(hashes)


def _text(value: str) -> bytes:
    units = value.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
