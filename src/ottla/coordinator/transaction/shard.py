"""The transactional ids of one partition of `__transaction_state`. Only `replay` changes them.

The modules `init`, `partitions`, `end`, `expiry` and `listing` have the operations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.transaction.records import from_record, to_record
from ottla.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    PREPARED,
    VALID_PREVIOUS,
    TransactionMetadata,
    TransactionState,
)
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TransactionalId
from ottla.wire.messages import TransactionLogKey

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_logger = logging.getLogger(__name__)

Prepared = Callable[[int, TransactionMetadata], None]
"""Called with (partition, transaction) for each that a newly loaded shard finds decided but not completed."""

Unloaded = Callable[[int], None]
"""Called when this broker no longer coordinates the partition's transactions."""


class TransactionShard:
    """State of one partition. `coordinator_epoch` is the leader epoch in which this broker coordinates it."""

    __slots__ = (
        "_last_epochs",
        "_on_prepared",
        "_on_unloaded",
        "_transactions",
        "coordinator_epoch",
        "partition",
        "transaction_version",
    )

    def __init__(
        self,
        partition: int = 0,
        coordinator_epoch: int = 0,
        *,
        transaction_version: Callable[[], int] = lambda: EPOCH_BUMP_VERSION,
        on_prepared: Prepared | None = None,
        on_unloaded: Unloaded | None = None,
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version
        """The cluster's finalized `transaction.version`."""
        self._on_prepared = on_prepared
        self._on_unloaded = on_unloaded
        self._transactions: dict[TransactionalId, TransactionMetadata] = {}
        self._last_epochs: dict[TransactionalId, int] = {}
        """The previous epoch, where its owner may repeat the request that gave it the current one.

        Kafka's record has no field for it: it is lost with the leadership, and the retry is fenced then.
        """

    @property
    def transactions(self) -> Mapping[TransactionalId, TransactionMetadata]:
        return MappingProxyType(self._transactions)

    def find(self, transactional_id: TransactionalId) -> TransactionMetadata | None:
        return self._transactions.get(transactional_id)

    def require(self, transactional_id: TransactionalId) -> TransactionMetadata:
        """The state of the id; raises INVALID_PRODUCER_ID_MAPPING for an unknown one."""
        txn = self._transactions.get(transactional_id)
        if txn is None:
            raise ApiException(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"There is no transactional id {transactional_id}: it was never used, or has expired",
            )
        return txn

    def last_epoch(self, transactional_id: TransactionalId) -> int:
        return self._last_epochs.get(transactional_id, NO_EPOCH)

    def note_last_epoch(self, txn: TransactionMetadata, last_epoch: int) -> None:
        """InitProducerId gave the epoch of `txn` to the producer with `last_epoch` (-1: to a new producer)."""
        if self._transactions.get(txn.transactional_id) == txn:
            self._last_epochs[txn.transactional_id] = last_epoch

    def record(self, txn: TransactionMetadata) -> CoordinatorRecord:
        """The record that makes `txn` the state of its id; the table must allow the transition."""
        known = self._transactions.get(txn.transactional_id)
        before = TransactionState.EMPTY if known is None else known.state
        if before not in VALID_PREVIOUS[txn.state]:
            raise AssertionError(f"{txn.transactional_id}: {before.title} cannot become {txn.state.title}")
        return to_record(txn, self.transaction_version())

    # -- CoordinatorShard

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        key = record.key
        assert isinstance(key, TransactionLogKey)
        transactional_id = TransactionalId(key.transactional_id)
        known = self._transactions.get(transactional_id)
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            return
        try:
            state = record.state
            txn = state if isinstance(state, TransactionMetadata) else from_record(record)
        except ValueError as error:
            _logger.warning("Skipped a record of %s at offset %d: %s", transactional_id, offset, error)
            return
        self._transactions[transactional_id] = txn
        if txn.state is TransactionState.EMPTY:
            self._last_epochs.pop(transactional_id, None)
        elif known is not None and txn.state in PREPARED:
            if txn.client_version >= EPOCH_BUMP_VERSION:
                self._last_epochs[transactional_id] = known.producer_epoch
            elif txn.producer_epoch != known.producer_epoch:
                self._last_epochs.pop(transactional_id, None)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The records of `__transaction_state` belong to no transaction themselves."""

    def on_loaded(self, image: MetadataImage, now_ms: int) -> None:
        if self._on_prepared is None:
            return
        for txn in [txn for txn in self._transactions.values() if txn.state in PREPARED]:
            self._on_prepared(self.partition, txn)

    def on_unloaded(self) -> None:
        if self._on_unloaded is not None:
            self._on_unloaded(self.partition)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Nothing to do: markers are not sent to deleted partitions."""
