"""Adds the partitions of transactional records to their transaction, or verifies them, before the append.

Produce and TxnOffsetCommit use it. The version of the request says what its client supports: from transaction version 2
on a batch adds its partition; before that the client has added it, and the broker verifies that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from ottla.broker.services import Broker
from ottla.coordinator.transaction.add_partitions_manager import VerificationRequest
from ottla.coordinator.transaction.state import EPOCH_BUMP_VERSION
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TransactionalId
from ottla.log.types import TopicPartition

Errors = Mapping[TopicPartition, ErrorCode]
"""Only the partitions that may not be appended to."""


class Supported(Enum):
    """What the client of a request supports."""

    OLD_ERRORS = "partitions are added by the client, which knows no TRANSACTION_ABORTABLE"
    ABORTABLE = "partitions are added by the client"
    ADDS_PARTITIONS = "partitions are added by the request itself"

    @staticmethod
    def of(version: int, *, abortable_from: int, adds_from: int) -> Supported:
        if version >= adds_from:
            return Supported.ADDS_PARTITIONS
        return Supported.ABORTABLE if version >= abortable_from else Supported.OLD_ERRORS


_TRANSLATED: Final = {
    # Producers know this code from the partition's leader, and abort.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


def add_or_verify(
    broker: Broker,
    transactional_id: TransactionalId,
    producer_id: ProducerId,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    supported: Supported,
    done: Callable[[Errors], None],
) -> None:
    """Ask the coordinator; `done` is called before this returns, or later.

    While the last transaction ends, adding is retried for a moment: it would cost more to send the batches again.
    """
    wanted = tuple(partitions)
    began = broker.clock.monotonic()
    adds = supported is Supported.ADDS_PARTITIONS

    def verified(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        if (
            adds
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and broker.clock.monotonic() - began < _retry_time_s(broker)
        ):
            backoff_ms = broker.config.int("add.partitions.to.txn.retry.backoff.ms")
            broker.clock.call_later(backoff_ms / 1000, ask)
        else:
            done(
                {
                    tp: _client_code(code, supported)
                    for tp, code in codes.items()
                    if code is not ErrorCode.NONE
                }
            )

    def failed(error: ApiException) -> None:
        verified(dict.fromkeys(wanted, error.code))

    def ask() -> None:
        coordinator = broker.transactions
        try:
            leader = coordinator.coordinator_of(transactional_id)
            if leader != broker.node_id:
                verification = VerificationRequest(
                    transactional_id, producer_id, producer_epoch, wanted, not adds, verified
                )
                coordinator.add_partitions_manager.send(leader, verification)
            elif adds:
                coordinator.add_partitions(
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    wanted,
                    EPOCH_BUMP_VERSION,
                    lambda _: done({}),
                    failed,
                )
            else:
                coordinator.verify_partitions(
                    transactional_id, producer_id, producer_epoch, wanted, verified, failed
                )
        except ApiException as error:
            failed(error)

    ask()


def _retry_time_s(broker: Broker) -> float:
    config = broker.config
    return (
        min(config.int("add.partitions.to.txn.retry.backoff.max.ms"), config.int("request.timeout.ms")) / 1000
    )


def _client_code(code: ErrorCode, supported: Supported) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and supported is Supported.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return _TRANSLATED.get(code, code)
