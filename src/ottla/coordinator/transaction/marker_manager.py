"""Telling the partitions of a transaction its end: markers are sent until each partition has one.

How a marker reaches a partition is behind `MarkerWriter`: the leader may be this broker or another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.clock import Clock, Timer
from ottla.coordinator.transaction.state import TransactionMetadata, TransactionState
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition

_logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""How long a partition that could not take its marker is left alone."""

_DONE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)


@dataclass(frozen=True, slots=True)
class TxnMarker:
    """The end of a producer's transaction, the same for all of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    """By it a partition knows whether the marker's epoch must be above that of the batches."""


MarkersDone = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class MarkerWriter(Protocol):
    """Writes a marker to partitions, wherever they are led."""

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        """Call `done` with an error code for each partition, some at a time, as the markers are replicated."""


class PendingTransaction:
    """A transaction that is decided, and the partitions that do not know it yet."""

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
        """Send to a partition again, together with the others that wait for it."""
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
    """Brings every decided transaction to its end: `on_complete` when all of its partitions have their marker."""

    __slots__ = ("_clock", "_exists", "_on_complete", "_unfinished", "_writer")

    def __init__(
        self,
        clock: Clock,
        writer: MarkerWriter,
        *,
        exists: Callable[[TopicPartition], bool],
        on_complete: Callable[[int, TransactionMetadata], None],
    ) -> None:
        """`exists` tells whether there is still such a partition in the metadata."""
        self._clock = clock
        self._writer = writer
        self._exists = exists
        self._on_complete = on_complete
        self._unfinished: dict[int, dict[str, PendingTransaction]] = {}
        """By partition of `__transaction_state`, then by transactional id."""

    def __len__(self) -> int:
        return sum(len(each) for each in self._unfinished.values())

    def add(self, shard_partition: int, coordinator_epoch: int, prepared: TransactionMetadata) -> None:
        """Send the markers of a transaction whose decision is committed."""
        mine = self._unfinished.setdefault(shard_partition, {})
        former = mine.pop(prepared.transactional_id, None)
        if former is not None:
            former.cancel()
        unfinished = PendingTransaction(prepared, coordinator_epoch)
        mine[prepared.transactional_id] = unfinished
        self._send(shard_partition, unfinished, sorted(unfinished.partitions))

    def remove(self, shard_partition: int) -> None:
        """This broker no longer coordinates the partition's transactions: the next coordinator goes on."""
        for unfinished in self._unfinished.pop(shard_partition, {}).values():
            unfinished.cancel()

    def shutdown(self) -> None:
        for shard_partition in list(self._unfinished):
            self.remove(shard_partition)

    def _send(
        self, shard_partition: int, unfinished: PendingTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        there = []
        for tp in partitions:
            if self._exists(tp):
                there.append(tp)
            else:
                # Whoever deleted a topic has decided its transactions, too.
                unfinished.partitions.discard(tp)
        if not unfinished.partitions:
            self._finish(shard_partition, unfinished)
        elif there:
            self._writer.write(
                unfinished.marker, there, lambda results: self._written(shard_partition, unfinished, results)
            )

    def _written(
        self,
        shard_partition: int,
        unfinished: PendingTransaction,
        results: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        if unfinished.cancelled:
            return
        transactional_id = unfinished.prepared.transactional_id
        for tp, code in results.items():
            if code in _DONE:
                unfinished.partitions.discard(tp)
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                _logger.warning("Another coordinator ends the transaction of %s", transactional_id)
                self._unfinished.get(shard_partition, {}).pop(transactional_id, None)
                unfinished.cancel()
                return
            elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # The producer has begun a later epoch there, so this transaction is not open in the partition.
                _logger.warning("%s knows a later epoch than the marker of %s", tp, transactional_id)
                unfinished.partitions.discard(tp)
            else:
                _logger.info("The marker of %s did not reach %s: %s", transactional_id, tp, code.name)
                unfinished.retry_later(
                    tp, self._clock, lambda failed: self._send(shard_partition, unfinished, failed)
                )
        if not unfinished.partitions:
            self._finish(shard_partition, unfinished)

    def _finish(self, shard_partition: int, unfinished: PendingTransaction) -> None:
        self._unfinished.get(shard_partition, {}).pop(unfinished.prepared.transactional_id, None)
        unfinished.cancel()
        self._on_complete(shard_partition, unfinished.prepared)
