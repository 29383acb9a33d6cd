"""EndTxn: the decision, which is a record, and the completion, once every partition has its transaction marker.

From version 2 on the decision takes the next epoch, so that a late batch cannot join the next transaction.
The table shows the response to an EndTxn when no transaction is open ("again": the request has the previous epoch;
"now": it has the current epoch):

                      abort again   abort now     commit again   commit now
    Empty             fenced        new epoch     fenced         invalid
    CompleteAbort     as answered   new epoch     invalid        invalid
    CompleteCommit    invalid       new epoch     as answered    invalid

Before version 2 the epoch must be the current one, and only the outcome that was decided may be requested again.
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
from ottla.ids import ProducerId, TransactionalId

_S = TransactionState


@dataclass(frozen=True, slots=True)
class EndRequest:
    """What an EndTxn request asks for."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    commit: bool
    client_version: int = EPOCH_BUMP_VERSION


@dataclass(frozen=True, slots=True)
class Ended:
    """The decision is made. `prepared` needs markers; it is None for a repeated request."""

    prepared: TransactionMetadata | None
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    """The epoch that the producer continues with, from version 2 on."""
    needs_producer_id: bool = False
    """Nothing was done: run the operation again with a new producer id."""


def end_transaction(
    shard: TransactionShard, request: EndRequest, now_ms: int, new_producer_id: ProducerId = NO_PRODUCER_ID
) -> CoordinatorResult[Ended]:
    """Decide the outcome of a transaction, as the table of the module says."""
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
    # Only an end of version 2 took the next epoch: after other ends the previous epoch is that of a fenced producer.
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
    # The client may not know whether any of its batches arrived: perhaps only the epoch changes.
    return _prepare(shard, txn._replace(started_ms=now_ms), _S.PREPARE_ABORT, now_ms, new_producer_id)


def _end_in_epoch(
    shard: TransactionShard, txn: TransactionMetadata, request: EndRequest, now_ms: int
) -> CoordinatorResult[Ended]:
    """End a transaction before version 2: the epoch stays."""
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
    shard: TransactionShard,
    txn: TransactionMetadata,
    now_ms: int,
    new_producer_id: ProducerId = NO_PRODUCER_ID,
) -> CoordinatorResult[Ended]:
    """Abort an open transaction and fence its producer at once."""
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
    new_producer_id: ProducerId,
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
    """Every marker of `prepared` is written. Does nothing if the id has another state since."""
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
