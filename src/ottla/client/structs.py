"""The tuples that go in and out of the client API."""

from __future__ import annotations

from typing import Any, NamedTuple

Headers = list[tuple[str, bytes]]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition, on one broker."""

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the offset to read next, and a note of its own."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

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
    """Where a consumer stands with its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership, by which a transaction of its producer is fenced.

    `token` is the engine's own form of it; only `send_offsets_to_transaction` looks at it.
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    token: Any = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record went. Sizes are -1 where there is nothing; `checksum` is always None."""

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
    """One record read from a partition; key and value have gone through the deserializers."""

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
