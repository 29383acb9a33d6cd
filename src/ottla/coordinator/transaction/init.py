"""InitProducerId for a transactional id: a new epoch, which fences the producer with the previous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.transaction.end import Ended, fence
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import (
    AT_REST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    NO_TIMEOUT,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    epoch_exhausted,
)
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TransactionalId


@dataclass(frozen=True, slots=True)
class InitRequest:
    """`expected_*` are the values that the producer has, -1 for a new producer."""

    transactional_id: TransactionalId
    timeout_ms: int
    expected_id: ProducerId = NO_PRODUCER_ID
    expected_epoch: int = NO_EPOCH

    @property
    def has_expectation(self) -> bool:
        return self.expected_id != NO_PRODUCER_ID


class NeedsProducerId:
    """Nothing was done: run the operation again with a new producer id."""

    __slots__ = ()


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


@dataclass(frozen=True, slots=True)
class Initialized:
    """The state with which the producer starts."""

    transaction: TransactionMetadata
    last_epoch: int


InitOutcome = Initialized | Ended | NeedsProducerId
"""`Ended`: an open transaction is aborted first, and the producer has to retry."""


def check_request(
    transactional_id: TransactionalId,
    timeout_ms: int,
    *,
    two_phase: bool,
    keep_prepared: bool,
    two_phase_enabled: bool,
    max_timeout_ms: int,
) -> int:
    """Check a request; returns the timeout that applies to it."""
    if not transactional_id:
        raise ApiException(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty")
    if two_phase and not two_phase_enabled:
        raise ApiException(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Two-phase commit is off (transaction.two.phase.commit.enable)",
        )
    if keep_prepared:
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION, "Prepared transactions cannot be kept")
    if two_phase:
        return NO_TIMEOUT
    if not 0 < timeout_ms <= max_timeout_ms:
        raise ApiException(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"A transaction timeout of {timeout_ms} ms is not in 1..{max_timeout_ms} (transaction.max.timeout.ms)",
        )
    return timeout_ms


def init_producer_id(
    shard: TransactionShard, request: InitRequest, now_ms: int, new_producer_id: ProducerId = NO_PRODUCER_ID
) -> CoordinatorResult[InitOutcome]:
    """Give the id a new epoch, or abort its open transaction first."""
    txn = shard.find(request.transactional_id)
    if txn is None:
        if new_producer_id == NO_PRODUCER_ID:
            return CoordinatorResult((), NEEDS_PRODUCER_ID)
        txn = TransactionMetadata(request.transactional_id, new_producer_id, NO_EPOCH, request.timeout_ms)
    if txn.state in PREPARED:
        raise ApiException(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"{txn.transactional_id}: the last transaction is being ended"
        )
    if request.has_expectation and not _may_be_owner(txn, request):
        raise _fenced(txn, request)
    if txn.state is TransactionState.ONGOING:
        fenced = fence(shard, txn, now_ms, new_producer_id)
        return CoordinatorResult(fenced.records, cast(Ended, fenced.response))
    assert txn.state in AT_REST
    if txn.epoch_exhausted and request.expected_epoch in (NO_EPOCH, txn.producer_epoch):
        if new_producer_id == NO_PRODUCER_ID:
            return CoordinatorResult((), NEEDS_PRODUCER_ID)
        producer_id, epoch = new_producer_id, 0
        last_epoch = txn.producer_epoch if request.has_expectation else NO_EPOCH
    else:
        producer_id = txn.producer_id
        epoch, last_epoch = _next_epoch(shard, txn, request)
    begun = txn._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=txn.producer_id,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIME,
        updated_ms=now_ms,
    )
    return CoordinatorResult((shard.record(begun),), Initialized(begun, last_epoch))


def _may_be_owner(txn: TransactionMetadata, request: InitRequest) -> bool:
    """Whether the producer id is new, the current one, or the previous one with its epochs used up.

    The last is a producer that never received the response with its new id.
    """
    return (
        txn.producer_epoch == NO_EPOCH
        or request.expected_id == txn.producer_id
        or (request.expected_id == txn.previous_producer_id and epoch_exhausted(request.expected_epoch))
    )


def _next_epoch(shard: TransactionShard, txn: TransactionMetadata, request: InitRequest) -> tuple[int, int]:
    """The producer's epoch and the one before it."""
    last_epoch = shard.last_epoch(txn.transactional_id)
    bumped = txn.producer_epoch + 1
    if request.has_expectation and txn.producer_epoch != NO_EPOCH:
        if request.expected_epoch != txn.producer_epoch:
            if request.expected_epoch != last_epoch:
                raise _fenced(txn, request)
            # A request that succeeded is retried. No producer came in between: it would have cleared the last epoch.
            return txn.producer_epoch, last_epoch
        return bumped, txn.producer_epoch
    return bumped, NO_EPOCH


def _fenced(txn: TransactionMetadata, request: InitRequest) -> ApiException:
    return ApiException(
        ErrorCode.PRODUCER_FENCED,
        f"{txn.transactional_id}: producer {request.expected_id} with epoch {request.expected_epoch} was overtaken "
        f"by producer {txn.producer_id} with epoch {txn.producer_epoch}",
    )
