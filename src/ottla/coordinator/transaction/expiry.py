"""Aborts open transactions whose timeout is over, and expires transactional ids that are not used."""

from __future__ import annotations

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.transaction.end import Ended, fence
from ottla.coordinator.transaction.records import tombstone
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import (
    AT_REST,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from ottla.ids import ProducerId


def timed_out(shard: TransactionShard, now_ms: int) -> list[TransactionMetadata]:
    """Open transactions that are older than their timeout."""
    return [
        txn
        for txn in shard.transactions.values()
        if txn.state is TransactionState.ONGOING
        and not txn.two_phase
        and txn.started_ms + txn.timeout_ms < now_ms
    ]


def abort_timed_out(
    shard: TransactionShard,
    txn: TransactionMetadata,
    now_ms: int,
    new_producer_id: ProducerId = NO_PRODUCER_ID,
) -> CoordinatorResult[Ended]:
    """Abort a transaction that `timed_out` returned, unless it has changed since."""
    if shard.find(txn.transactional_id) != txn:
        return CoordinatorResult((), Ended(None))
    return fence(shard, txn, now_ms, new_producer_id)


def expire_ids(
    shard: TransactionShard, expiration_ms: int, limit: int, now_ms: int
) -> CoordinatorResult[int]:
    """Write tombstones for up to `limit` ids that were not used for so long; responds with their count."""
    expired = []
    for txn in shard.transactions.values():
        if txn.state in AT_REST and txn.updated_ms <= now_ms - expiration_ms:
            expired.append(tombstone(txn.transactional_id))
            if len(expired) == limit:
                break
    return CoordinatorResult(expired, len(expired))
