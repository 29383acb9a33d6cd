"""The end of a transaction: the decision, which is a record, and the completion, once every partition has its marker.

From version 2 on the decision takes the next epoch, so that nothing late can be mistaken for the next transaction.
What a producer may then send for a transaction that is not open ("again": with the epoch before; "now": with the
current one):

                      abort again   abort now     commit again   commit now
    Empty             fenced        new epoch     fenced         invalid
    CompleteAbort     as answered   new epoch     invalid        invalid
    CompleteCommit    invalid       new epoch     as answered    invalid

Before version 2 the epoch must be the current one, and only what was decided may be asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)
from ottla.errors import ApiException, ErrorCode

_S = TransactionState


@dataclass(frozen=True, slots=True)
class EndRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = EPOCH_BUMP_VERSION


@dataclass(frozen=True, slots=True)
class Ended:
    """The decision is made. `prepared` needs markers, unless it is None: the end was asked for again."""

    prepared: TransactionMetadata | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    """What the producer goes on with, from version 2 on."""
    needs_producer_id: bool = False
    """Nothing was done: the operation has to be run again with a new producer id."""


def end_transaction(
    shard: TransactionShard, request: EndRequest, now_ms: int, new_producer_id: int = NO_PRODUCER_ID
) -> CoordinatorResult[Ended]:
    txn = shard.require(request.transactional_id)
    if request.client_version < EPOCH_BUMP_VERSION:
        return _end_in_epoch(shard, txn, request, now_ms)
    if txn.state in PREPARED:
        raise _concurrent(txn)
    rotated = (
        txn.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and txn.producer_epoch == 0
    )
    if txn.producer_id != request.producer_id and not rotated:
        raise _other_producer(txn, request.producer_id)
    now = request.producer_epoch == txn.producer_epoch and not rotated
    # Only an end of version 2 took the next epoch: after any other, the epoch before is that of a fenced producer.
    bumped = txn.client_version >= EPOCH_BUMP_VERSION and txn.producer_epoch == request.producer_epoch + 1
    again = rotated or bumped
    if not (now or (again and txn.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))):
        raise _fenced(txn, request.producer_epoch)
    if txn.state is _S.ONGOING:
        decided = _S.PREPARE_COMMIT if request.commit else _S.PREPARE_ABORT
        return _prepare(shard, txn, decided, now_ms, new_producer_id)
    if again:
        if (txn.state is _S.COMPLETE_COMMIT) != request.commit:
            raise _invalid(txn, request.commit)
        return CoordinatorResult((), Ended(None, txn.producer_id, txn.producer_epoch))
    if request.commit:
        raise _invalid(txn, request.commit)
    # The client need not know whether any of its batches arrived: there may be nothing to abort but the epoch.
    return _prepare(shard, txn._replace(started_ms=now_ms), _S.PREPARE_ABORT, now_ms, new_producer_id)


def _end_in_epoch(
    shard: TransactionShard, txn: TransactionMetadata, request: EndRequest, now_ms: int
) -> CoordinatorResult[Ended]:
    """The end before version 2: the epoch stays."""
    if txn.producer_id != request.producer_id:
        raise _other_producer(txn, request.producer_id)
    if txn.producer_epoch != request.producer_epoch:
        raise _fenced(txn, request.producer_epoch)
    if txn.state in PREPARED:
        raise _concurrent(txn)
    if txn.state is _S.ONGOING:
        prepared = TransactionMetadata(
            txn.transactional_id,
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
            _S.PREPARE_COMMIT if request.commit else _S.PREPARE_ABORT,
            txn.partitions,
            started_ms=txn.started_ms,
            updated_ms=now_ms,
            previous_producer_id=txn.producer_id,
        )
        return CoordinatorResult((shard.record(prepared),), Ended(prepared))
    if txn.state is (_S.COMPLETE_COMMIT if request.commit else _S.COMPLETE_ABORT):
        return CoordinatorResult((), Ended(None))
    raise _invalid(txn, request.commit)


def fence(
    shard: TransactionShard, txn: TransactionMetadata, now_ms: int, new_producer_id: int = NO_PRODUCER_ID
) -> CoordinatorResult[Ended]:
    """Abort an open transaction against its producer's will: its epoch is over at once."""
    if shard.transaction_version() >= EPOCH_BUMP_VERSION:
        return _prepare(shard, txn, _S.PREPARE_ABORT, now_ms, new_producer_id)
    prepared = txn._replace(
        producer_epoch=min(txn.producer_epoch + 1, MAX_EPOCH),
        state=_S.PREPARE_ABORT,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        updated_ms=now_ms,
        client_version=0,
    )
    return CoordinatorResult((shard.record(prepared),), Ended(prepared))


def _prepare(
    shard: TransactionShard,
    txn: TransactionMetadata,
    decided: TransactionState,
    now_ms: int,
    new_producer_id: int,
) -> CoordinatorResult[Ended]:
    next_producer_id = NO_PRODUCER_ID
    if txn.epoch_exhausted:
        if new_producer_id == NO_PRODUCER_ID:
            return CoordinatorResult((), Ended(None, needs_producer_id=True))
        next_producer_id = new_producer_id
    prepared = TransactionMetadata(
        txn.transactional_id,
        txn.producer_id,
        min(txn.producer_epoch + 1, MAX_EPOCH),
        txn.timeout_ms,
        decided,
        txn.partitions,
        started_ms=txn.started_ms,
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        client_version=EPOCH_BUMP_VERSION,
    )
    after = completed(prepared, now_ms)
    return CoordinatorResult(
        (shard.record(prepared),), Ended(prepared, after.producer_id, after.producer_epoch)
    )


def completed(prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The state once every partition has its marker."""
    rotate = prepared.client_version >= EPOCH_BUMP_VERSION and prepared.next_producer_id != NO_PRODUCER_ID
    return TransactionMetadata(
        prepared.transactional_id,
        prepared.next_producer_id if rotate else prepared.producer_id,
        0 if rotate else prepared.producer_epoch,
        prepared.timeout_ms,
        _S.COMPLETE_COMMIT if prepared.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
        started_ms=prepared.started_ms,
        updated_ms=now_ms,
        previous_producer_id=prepared.producer_id,
        client_version=prepared.client_version,
    )


def complete(
    shard: TransactionShard, prepared: TransactionMetadata, now_ms: int
) -> CoordinatorResult[TransactionMetadata | None]:
    """Every marker of `prepared` is written. Nothing happens if the id has moved on since."""
    if shard.find(prepared.transactional_id) != prepared:
        return CoordinatorResult((), None)
    after = completed(prepared, now_ms)
    return CoordinatorResult((shard.record(after),), after)


def _concurrent(txn: TransactionMetadata) -> ApiException:
    return ApiException(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"{txn.transactional_id}: the transaction is being ended already"
    )


def _other_producer(txn: TransactionMetadata, producer_id: int) -> ApiException:
    return ApiException(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{txn.transactional_id} has producer id {txn.producer_id}, not {producer_id}",
    )


def _fenced(txn: TransactionMetadata, epoch: int) -> ApiException:
    return ApiException(
        ErrorCode.PRODUCER_FENCED, f"{txn.transactional_id} has epoch {txn.producer_epoch}, not {epoch}"
    )


def _invalid(txn: TransactionMetadata, commit: bool) -> ApiException:
    return ApiException(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id} is {txn.state.title}: there is nothing to {'commit' if commit else 'abort'}",
    )
