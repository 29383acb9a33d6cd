"""AddPartitionsToTxn: adds partitions to a transaction, or verifies that they are part of it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import PREPARED, TransactionMetadata, TransactionState
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TransactionalId
from ottla.log.types import TopicPartition


def add_partitions(
    shard: TransactionShard,
    transactional_id: TransactionalId,
    producer_id: ProducerId,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> CoordinatorResult[None]:
    """Add partitions to the transaction; the first starts it."""
    txn = shard.require(transactional_id)
    # This check comes first: while the last transaction ends, the producer's id may change.
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
    transactional_id: TransactionalId,
    producer_id: ProducerId,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Check which partitions the client has added (clients before version 2 of transactions add them)."""
    txn = shard.require(transactional_id)
    _check_producer(txn, producer_id, producer_epoch)
    _check_decided(txn)
    return {
        tp: ErrorCode.NONE if tp in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
    }


def _check_producer(txn: TransactionMetadata, producer_id: ProducerId, producer_epoch: int) -> None:
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
