"""Adding partitions to a transaction, and telling whether they are part of it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import PREPARED, TransactionMetadata, TransactionState
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition


def add_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> CoordinatorResult[None]:
    """Make partitions part of the transaction, which begins with the first."""
    txn = shard.require(transactional_id)
    # First of all: while the last transaction is being ended the producer's id itself may be about to change.
    _check_decided(txn)
    _check_producer(txn, producer_id, producer_epoch)
    ongoing = txn.state is TransactionState.ONGOING
    if ongoing and partitions <= txn.partitions:
        return CoordinatorResult((), None)
    added = TransactionMetadata(
        txn.transactional_id,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        TransactionState.ONGOING,
        txn.partitions | partitions if txn.partitions else partitions,
        started_ms=txn.started_ms if ongoing else now_ms,
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=txn.next_producer_id,
        client_version=client_version,
    )
    return CoordinatorResult((shard.record(added),), None)


def verify_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Which partitions the client did add: the check for clients that add them themselves."""
    txn = shard.require(transactional_id)
    _check_producer(txn, producer_id, producer_epoch)
    _check_decided(txn)
    return {
        tp: ErrorCode.NONE if tp in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
    }


def _check_producer(txn: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if txn.producer_id != producer_id:
        raise ApiException(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{txn.transactional_id} has producer id {txn.producer_id}, not {producer_id}",
        )
    if txn.producer_epoch != producer_epoch:
        raise ApiException(
            ErrorCode.PRODUCER_FENCED,
            f"{txn.transactional_id} has epoch {txn.producer_epoch}, not {producer_epoch}",
        )


def _check_decided(txn: TransactionMetadata) -> None:
    if txn.state in PREPARED:
        raise ApiException(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"{txn.transactional_id}: the last transaction is being ended"
        )
