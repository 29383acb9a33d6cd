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
    _Verification(
        broker, transactional_id, producer_id, producer_epoch, tuple(partitions), supported, done
    ).ask()


class _Verification:
    """One question to a coordinator, asked again after a while if need be.

    An object and not functions in each other: those would be a reference cycle for each transaction.
    """

    __slots__ = (
        "_adds",
        "_began",
        "_broker",
        "_done",
        "_partitions",
        "_producer_epoch",
        "_producer_id",
        "_supported",
        "_transactional_id",
    )

    def __init__(
        self,
        broker: Broker,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: tuple[TopicPartition, ...],
        supported: Supported,
        done: Callable[[Errors], None],
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._partitions = partitions
        self._supported = supported
        self._adds = supported is Supported.ADDS_PARTITIONS
        self._done = done
        self._began = broker.clock.monotonic()

    def ask(self) -> None:
        broker, coordinator = self._broker, self._broker.transactions
        producer = self._transactional_id, self._producer_id, self._producer_epoch
        try:
            leader = coordinator.coordinator_of(self._transactional_id)
            if leader != broker.node_id:
                verification = VerificationRequest(
                    *producer, self._partitions, not self._adds, self._verified
                )
                coordinator.add_partitions_manager.send(leader, verification)
            elif self._adds:
                coordinator.add_partitions(
                    *producer, self._partitions, EPOCH_BUMP_VERSION, self._added, self._failed
                )
            else:
                coordinator.verify_partitions(*producer, self._partitions, self._verified, self._failed)
        except ApiException as error:
            self._failed(error)

    def _added(self, _: object) -> None:
        self._done({})

    def _failed(self, error: ApiException) -> None:
        self._verified(dict.fromkeys(self._partitions, error.code))

    def _verified(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        broker = self._broker
        if (
            self._adds
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and broker.clock.monotonic() - self._began < _retry_time_s(broker)
        ):
            backoff_ms = broker.config.int("add.partitions.to.txn.retry.backoff.ms")
            broker.clock.call_later(backoff_ms / 1000, self.ask)
            return
        self._done(
            {
                tp: _client_code(code, self._supported)
                for tp, code in codes.items()
                if code is not ErrorCode.NONE
            }
        )


def _retry_time_s(broker: Broker) -> float:
    config = broker.config
    return (
        min(config.int("add.partitions.to.txn.retry.backoff.max.ms"), config.int("request.timeout.ms")) / 1000
    )


def _client_code(code: ErrorCode, supported: Supported) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and supported is Supported.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return _TRANSLATED.get(code, code)
