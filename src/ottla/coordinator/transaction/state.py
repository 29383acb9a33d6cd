"""The states of a transaction, which may follow which, and what is known of one transactional id.

    Empty           ── partitions are added ──▶ Ongoing
    Ongoing         ── more partitions ───────▶ Ongoing
    Ongoing         ── EndTxn, commit ────────▶ PrepareCommit ── every marker is written ──▶ CompleteCommit
    Ongoing         ── EndTxn, abort; the time is up; a new producer of the same id ──▶ PrepareAbort
    PrepareAbort    ── every marker is written ──▶ CompleteAbort
    Complete*       ── partitions are added ──▶ Ongoing          (the next transaction)
    Empty Complete* ── InitProducerId ────────▶ Empty            (a new epoch)
    Empty Complete* ── EndTxn, abort ─────────▶ PrepareAbort     (version 2: the client need not know more)
    Empty Complete* ── nobody came for long ──▶ Dead             (a tombstone; never a record)

The prepared states are the point of no return: from there on the outcome stands, whoever fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.coordinator.records import CoordinatorRecord
from ottla.log.types import TopicPartition
from ottla.wire.messages import TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFF
NO_TIME: Final = -1

EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on every transaction ends with a new epoch (KIP-890)."""

NO_TIMEOUT: Final = 0x7FFF_FFFF
"""The timeout of a two-phase commit: the transaction waits for its outcome as long as it takes."""


class TransactionState(IntEnum):
    """The numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see."""
        return _TITLES[self]


_TITLES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}

_S = TransactionState
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""Nothing is under way: a new epoch, a new transaction or the end of the id may follow."""

VALID_PREVIOUS: Final = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The epoch fence exists as a number only: here fencing and aborting are one step."""


def epoch_exhausted(epoch: int) -> bool:
    """The highest epoch is never given out, so that whoever holds one can still be fenced."""
    return epoch >= MAX_EPOCH - 1


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id as its newest record tells it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """What takes part in the open transaction, or is still to be told its end."""
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that takes over when the transaction is complete, because the epochs of this one are used up."""
    client_version: int = 0
    """The transaction version of the client that brought it here."""

    @property
    def epoch_exhausted(self) -> bool:
        return epoch_exhausted(self.producer_epoch)

    @property
    def two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT


def to_record(txn: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """The record of a state; from transaction version 1 on in the flexible format, with the ids before and after."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(txn.partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None
        if txn.state is TransactionState.EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic.items()
        ],
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.started_ms,
    )
    version = 0
    if transaction_version >= 1:
        version = 1
        value.previous_producer_id = txn.previous_producer_id
        value.next_producer_id = txn.next_producer_id
        value.client_transaction_version = txn.client_version
    return CoordinatorRecord(TransactionLogKey(transactional_id=txn.transactional_id), value, version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def from_record(record: CoordinatorRecord) -> TransactionMetadata:
    """The state that a record (no tombstone) tells. Raises ValueError for a state that does not exist."""
    value = record.value
    assert value is not None
    return TransactionMetadata(
        transactional_id=record.key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
