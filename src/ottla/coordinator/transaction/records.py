"""The record of a transactional id (TransactionLog): from the state to a message and bytes, and back."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.transaction.state import NO_PRODUCER_ID, TransactionMetadata, TransactionState
from ottla.ids import ProducerId, TopicName, TransactionalId
from ottla.log.types import TopicPartition
from ottla.wire.codec import encode
from ottla.wire.messages import TransactionLogKey, TransactionLogValue
from ottla.wire.primitives import uvarint

_FLEXIBLE_FROM: Final = 1
"""From this transaction version on, records have the flexible format, with the previous and next producer id."""


def to_record(txn: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """The record of a state in the format of the cluster's transaction version."""
    topics, topic_bytes = (None, _NULL) if txn.state is TransactionState.EMPTY else _topics(txn.partitions)
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=topics,
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.started_ms,
    )
    key, key_bytes = _key(txn.transactional_id)
    if transaction_version < _FLEXIBLE_FROM:
        # The state is more than such a record holds. A coordinator that loads it later begins with what it holds.
        return CoordinatorRecord(key, value, state=txn)
    value.previous_producer_id = txn.previous_producer_id
    value.next_producer_id = txn.next_producer_id
    value.client_transaction_version = txn.client_version
    return CoordinatorRecord(key, value, _VERSION, (key_bytes, _encode(txn, topic_bytes)), txn)


def tombstone(transactional_id: TransactionalId) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def from_record(record: CoordinatorRecord) -> TransactionMetadata:
    """The state in a record that is not a tombstone. Raises ValueError for a state that does not exist."""
    key, value = record.key, record.value
    assert isinstance(key, TransactionLogKey) and isinstance(value, TransactionLogValue)
    return TransactionMetadata(
        transactional_id=TransactionalId(key.transactional_id),
        producer_id=ProducerId(value.producer_id),
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(TopicName(topic.topic), index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        client_version=value.client_transaction_version,
    )


# -- the bytes of version 1: each transaction writes three records, so this is faster than the schema's encoder

_VERSION: Final = 1
_BEFORE_PARTITIONS: Final = Struct(">hqhib")
_AFTER_PARTITIONS: Final = Struct(">qqB")
_LONG_TAG: Final = Struct(">BBq")
_SHORT_TAG: Final = Struct(">BBh")
_KEY_TYPE: Final = Struct(">h")
_INT: Final = Struct(">i")
_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"


def _encode(txn: TransactionMetadata, topic_bytes: bytes) -> bytes:
    tags = []
    if txn.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(0, 8, txn.previous_producer_id))
    if txn.next_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(1, 8, txn.next_producer_id))
    if txn.client_version:
        tags.append(_SHORT_TAG.pack(2, 2, txn.client_version))
    return b"".join(
        (
            _BEFORE_PARTITIONS.pack(_VERSION, txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.state),
            topic_bytes,
            _AFTER_PARTITIONS.pack(txn.updated_ms, txn.started_ms, len(tags)),
            *tags,
        )
    )


@lru_cache(maxsize=4096)
def _key(transactional_id: TransactionalId) -> tuple[TransactionLogKey, bytes]:
    key = TransactionLogKey(transactional_id=transactional_id)
    return key, _KEY_TYPE.pack(key.API_KEY) + encode(key, 0)


@lru_cache(maxsize=256)
def _topics(
    partitions: frozenset[TopicPartition],
) -> tuple[list[TransactionLogValue.PartitionsSchema], bytes]:
    """The partitions as messages and as bytes, cached: most transactions of a producer have the same ones."""
    by_topic: dict[TopicName, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    out = bytearray(uvarint(len(by_topic) + 1))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        out += uvarint(len(name) + 1)
        out += name
        out += uvarint(len(indexes) + 1)
        for index in indexes:
            out += _INT.pack(index)
        out += _NO_TAGS
    messages = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic.items()
    ]
    return messages, bytes(out)
