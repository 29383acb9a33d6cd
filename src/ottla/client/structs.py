"""The tuples that go in and out of the client API."""

from __future__ import annotations

from typing import Any, NamedTuple

Headers = list[tuple[str, bytes]]


class TopicPartition(NamedTuple):
    """One partition of one topic.

    >>> TopicPartition("orders", 0).partition
    0
    """

    topic: str
    partition: int


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition, on one broker.

    >>> TopicPartitionReplica("orders", 0, broker_id=1).broker_id
    1
    """

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the offset to read next, and a note of its own.

    >>> OffsetAndMetadata(42, "after the import")
    OffsetAndMetadata(offset=42, metadata='after the import', leader_epoch=-1)
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time.

    >>> OffsetAndTimestamp(42, 1_700_000_000_000).offset
    42
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class BrokerMetadata(NamedTuple):
    """A broker's id and address."""

    nodeId: int  # noqa: N815 - the name is kafka-python's
    host: str
    port: int
    rack: str | None = None


class MemberState:
    """The states of a consumer in its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership, which fences transactions of its producer.

    `token` is librdkafka's own form of it; only `send_offsets_to_transaction` reads it.

    >>> ConsumerGroupMetadata("billing").group_id
    'billing'
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    token: object = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record was stored. Sizes are -1 for a missing key, value or headers; `checksum` is None.

    >>> place = producer.send("orders", b"two plums").get(timeout=30)
    >>> place.topic, place.serialized_value_size
    ('orders', 9)
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class ConsumerRecord(NamedTuple):
    """One record of a partition; key and value have passed the deserializers.

    >>> consumer.seek_to_beginning()
    >>> record = next(consumer)
    >>> record.topic, record.partition, record.offset, record.value
    ('orders', 0, 0, b'three apples')
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
