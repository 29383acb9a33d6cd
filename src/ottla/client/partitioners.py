"""Partitioners choose the partition of a record.

Without a partitioner of the user's, librdkafka chooses by the same hash of the key (murmur2) as Java and
kafka-python. The classes here are for those who bring their own, or build on the default.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.errors import KafkaConfigurationError

_MASK = 0xFFFFFFFF
_MIX = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    data = bytes(data)
    size = len(data)
    whole = size & ~3
    h = _SEED ^ size
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        k = (k ^ k >> 24) * _MIX & _MASK
        h = h * _MIX & _MASK ^ k
    if size != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    h = (h ^ h >> 13) * _MIX & _MASK
    return h ^ h >> 15


class Cluster:
    """A partitioner's view of the cluster: the topics that the producer has written to, and their partitions."""

    def __init__(self, partitions: Mapping[str, Mapping[int, int]]) -> None:
        self._leaders = partitions

    def topics(self) -> set[str]:
        return set(self._leaders)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        leaders = self._leaders.get(topic)
        return None if leaders is None else set(leaders)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Those that have a leader."""
        leaders = self._leaders.get(topic)
        return None if leaders is None else {one for one, leader in leaders.items() if leader >= 0}


class Partitioner(ABC):
    """Chooses a partition for a record that names none.

    >>> class First(Partitioner):
    ...     def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
    ...         return 0
    >>> from ottla import KafkaProducer
    >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, partitioner=First()) as producer:
    ...     producer.send("orders", b"a melon").get(timeout=30).partition
    0
    """

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """The partition of a record; the cluster knows the partitions of its topic.

        >>> known = Cluster({"orders": {0: 1, 1: 1, 2: 1}})
        >>> DefaultPartitioner().partition("orders", "alice", b"alice", None, None, known)
        0
        """


class DefaultPartitioner(Partitioner):
    """murmur2 of the key, as in Kafka's Java client; without a key, any partition that has a leader.

    >>> known = Cluster({"orders": {0: 1, 1: 1, 2: 1}})
    >>> DefaultPartitioner().partition("orders", "bob", b"bob", None, None, known)
    0
    """

    def partition(
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """The partition for a key, or any for a record without one.

        >>> DefaultPartitioner().partition("orders", None, None, None, b"pear", Cluster({"orders": {0: 1}}))
        0
        """
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if not partitions:
            raise ValueError(f"topic {topic} is not known")
        if serialized_key is not None:
            return partitions[(murmur2(serialized_key) & 0x7FFFFFFF) % len(partitions)]
        return random.choice(sorted(cluster.available_partitions_for_topic(topic) or ()) or partitions)


class StickyPartitioner(DefaultPartitioner):
    """The default: the engine already keeps records without a key together until their batch is sent."""


Choose = Callable[[str, object, bytes | None, object, bytes | None, Cluster], int | None]


def choose_function(given: Any) -> Choose | None:
    """The setting `partitioner` as one function; None if the engine's own partitioner does the same.

    It may be a `Partitioner`, an object with `partition(topic, key_bytes, cluster)`, and the older form: a
    function of the key's bytes, all partitions and those available.
    """
    if given is None or type(given) in (DefaultPartitioner, StickyPartitioner):
        return None
    if isinstance(given, Partitioner):
        return given.partition
    if hasattr(given, "partition"):
        return lambda topic, key, key_bytes, value, value_bytes, cluster: given.partition(
            topic, key_bytes, cluster
        )
    if callable(given):
        return lambda topic, key, key_bytes, value, value_bytes, cluster: given(
            key_bytes,
            sorted(cluster.partitions_for_topic(topic) or ()),
            sorted(cluster.available_partitions_for_topic(topic) or ()),
        )
    raise KafkaConfigurationError(f"partitioner must be a Partitioner or a function, not {given!r}")
