"""Sends the transaction markers of decided transactions until each partition has its marker.

One half of Kafka's TransactionMarkerChannelManager; `marker_router.py`, the other half, brings a transaction marker to
the leader of its partition, which may be this broker or another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.clock import Clock, Timer
from ottla.coordinator.transaction.state import TransactionMetadata, TransactionState
from ottla.errors import ErrorCode
from ottla.ids import ProducerId, TransactionalId
from ottla.log.types import TopicPartition

_logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""The pause before a marker that failed is sent to its partition again."""

_DONE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)


@dataclass(frozen=True, slots=True)
class TxnMarker:
    """A transaction marker: the end of a producer's transaction, the same for all of its partitions."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """Decides whether the marker's epoch must be above that of the batches."""


MarkersDone = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class MarkerWriter(Protocol):
    """Writes a marker to partitions, on whichever brokers lead them."""

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        """Call `done` with an error code for each partition, some at a time, as the markers are replicated."""


class PendingTransaction:
    """A transaction that is decided, and the partitions that do not have its marker yet."""

    __slots__ = ("_cancelled", "_failed", "_retry", "marker", "partitions", "prepared")

    def __init__(self, prepared: TransactionMetadata, coordinator_epoch: int) -> None:
        self.prepared = prepared
        self.partitions = set(prepared.partitions)
        self.marker = TxnMarker(
            prepared.producer_id,
            prepared.producer_epoch,
            coordinator_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.client_version,
        )
        self._failed: list[TopicPartition] = []
        self._retry: Timer | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def retry_later(
        self, tp: TopicPartition, clock: Clock, send: Callable[[list[TopicPartition]], None]
    ) -> None:
        """Send to a partition again, together with others that failed in the meantime."""
        self._failed.append(tp)
        if self._retry is None:
            self._retry = clock.call_later(RETRY_MS / 1000, self._retry_now, send)

    def _retry_now(self, send: Callable[[list[TopicPartition]], None]) -> None:
        self._retry = None
        failed, self._failed = self._failed, []
        send(failed)

    def cancel(self) -> None:
        self._cancelled = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


class TransactionMarkerManager:
    """Sends markers for decided transactions; calls `on_complete` when all partitions of one have their marker."""

    __slots__ = ("_clock", "_exists", "_on_complete", "_pending", "_writer")

    def __init__(
        self,
        clock: Clock,
        writer: MarkerWriter,
        *,
        exists: Callable[[TopicPartition], bool],
        on_complete: Callable[[int, TransactionMetadata], None],
    ) -> None:
        """`exists` says whether the metadata still has such a partition."""
        self._clock = clock
        self._writer = writer
        self._exists = exists
        self._on_complete = on_complete
        self._pending: dict[int, dict[TransactionalId, PendingTransaction]] = {}
        """By partition of `__transaction_state`, then by transactional id."""

    def __len__(self) -> int:
        return sum(len(each) for each in self._pending.values())

    def add(self, shard_partition: int, coordinator_epoch: int, prepared: TransactionMetadata) -> None:
        """Send the markers of a transaction whose decision is committed."""
        of_shard = self._pending.setdefault(shard_partition, {})
        former = of_shard.pop(prepared.transactional_id, None)
        if former is not None:
            former.cancel()
        pending = PendingTransaction(prepared, coordinator_epoch)
        of_shard[prepared.transactional_id] = pending
        self._send(shard_partition, pending, sorted(pending.partitions))

    def remove(self, shard_partition: int) -> None:
        """This broker no longer coordinates the partition's transactions: the next coordinator sends their markers."""
        for pending in self._pending.pop(shard_partition, {}).values():
            pending.cancel()

    def shutdown(self) -> None:
        for shard_partition in list(self._pending):
            self.remove(shard_partition)

    def _send(
        self, shard_partition: int, pending: PendingTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        existing = []
        for tp in partitions:
            if self._exists(tp):
                existing.append(tp)
            else:
                # A deleted topic needs no marker.
                pending.partitions.discard(tp)
        if not pending.partitions:
            self._finish(shard_partition, pending)
        elif existing:
            self._writer.write(
                pending.marker, existing, lambda results: self._written(shard_partition, pending, results)
            )

    def _written(
        self,
        shard_partition: int,
        pending: PendingTransaction,
        results: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        if pending.cancelled:
            return
        transactional_id = pending.prepared.transactional_id
        for tp, code in results.items():
            if code in _DONE:
                pending.partitions.discard(tp)
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                _logger.warning("Another coordinator ends the transaction of %s", transactional_id)
                self._pending.get(shard_partition, {}).pop(transactional_id, None)
                pending.cancel()
                return
            elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # The partition has a later epoch of the producer, so this transaction is not open there.
                _logger.warning("%s has a later epoch than the marker of %s", tp, transactional_id)
                pending.partitions.discard(tp)
            else:
                _logger.info("The marker of %s did not reach %s: %s", transactional_id, tp, code.name)
                pending.retry_later(
                    tp, self._clock, lambda failed: self._send(shard_partition, pending, failed)
                )
        if not pending.partitions:
            self._finish(shard_partition, pending)

    def _finish(self, shard_partition: int, pending: PendingTransaction) -> None:
        self._pending.get(shard_partition, {}).pop(pending.prepared.transactional_id, None)
        pending.cancel()
        self._on_complete(shard_partition, pending.prepared)
