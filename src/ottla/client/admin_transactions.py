"""The admin client's methods for transactions: which are open, since when, and how to end one that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypedDict

from ottla.admin import transactions as requests
from ottla.admin.transactions import OpenTransaction
from ottla.client.admin_base import AdminBase
from ottla.client.structs import TopicPartition

_GRACE_MS: Final = 5 * 60 * 1000
"""A transaction hangs if it is this much older than the longest timeout; Kafka's own tool has the same rule."""


class TransactionState(StrEnum):
    """The states of a transaction, with the coordinator's names.

    >>> TransactionState("Ongoing").name
    'ONGOING'
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


_OVER: Final = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
)


class TransactionListing(NamedTuple):
    """A transaction in a list.

    >>> [listing] = admin.list_transactions(transactional_id_pattern="payments")[1]
    >>> listing.transactional_id
    'payments'
    """

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transaction as its coordinator knows it.

    >>> admin.describe_transactions(["payments"])["payments"].state.value
    'CompleteCommit'
    """

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """A producer as a partition knows it.

    >>> ProducerState(1000, 0, -1, -1, -1, -1).producer_id
    1000
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that a partition knows.

    >>> PartitionProducerState([]).active_producers
    []
    """

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """The producer and the partition of an open transaction to end; a coordinator epoch of -1 is not checked.

    >>> AbortTransactionSpec(TopicPartition("orders", 0), 1000, 3).coordinator_epoch
    -1
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class HangingTransaction(TypedDict):
    """A transaction that is open for longer than any transaction may be."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    age_ms: int
    coordinator_id: int
    topic_partitions: list[TopicPartition]


class TransactionAdmin(AdminBase):
    """Describe transactions and producers, and end those that hang."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactions that each broker coordinates.

        >>> "payments" in [listing.transactional_id for listing in admin.list_transactions()[1]]
        True
        """
        states = [TransactionState(one).value for one in state_filters or ()]
        producer_ids = list(producer_id_filters or ())
        found = {}
        for broker in self._broker_ids() if broker_ids is None else broker_ids:
            listed = self._run(
                requests.list_transactions,
                broker,
                states=states,
                producer_ids=producer_ids,
                duration_ms=duration_filter_ms,
                pattern=transactional_id_pattern,
            )
            found[broker] = [
                TransactionListing(
                    one.transactional_id, one.producer_id, TransactionState(one.transaction_state)
                )
                for one in listed
            ]
        return found

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Transactions by their ids, with the partitions that they have written to.

        >>> admin.describe_transactions(["payments"])["payments"].coordinator_id
        1
        """
        found = {}
        for name in transactional_ids:
            coordinator, one = self._run(requests.describe_transaction, name)
            found[name] = TransactionDescription(
                coordinator,
                TransactionState(one.transaction_state),
                one.producer_id,
                one.producer_epoch,
                one.transaction_timeout_ms,
                one.transaction_start_time_ms,
                {TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions},
            )
        return found

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The producers that partitions know, from their leaders or from one broker.

        >>> from ottla import TopicPartition
        >>> ledger = TopicPartition("ledger", 0)
        >>> len(admin.describe_producers([ledger])[ledger].active_producers) > 0
        True
        """
        found = self._run(requests.describe_producers, partitions, broker_id)
        return {
            TopicPartition(*partition): PartitionProducerState(
                [
                    ProducerState(
                        one.producer_id,
                        one.producer_epoch,
                        one.last_sequence,
                        one.last_timestamp,
                        one.coordinator_epoch,
                        one.current_txn_start_offset,
                    )
                    for one in producers
                ]
            )
            for partition, producers in found.items()
        }

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End an open transaction on one partition, without its coordinator.

        >>> from ottla import AbortTransactionSpec, TopicPartition
        >>> first = TopicPartition("orders", 0)
        >>> for one in admin.describe_producers([first])[first].active_producers:
        ...     if one.current_transaction_start_offset >= 0:  # Its transaction is open.
        ...         admin.abort_transaction(AbortTransactionSpec(first, one.producer_id, one.producer_epoch))
        """
        self._run(requests.abort_transaction, OpenTransaction(*spec))

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Transactions that are open for longer than any transaction may be.

        >>> admin.find_hanging_transactions()
        []
        """
        listed = self.list_transactions(broker_ids)
        names = sorted({one.transactional_id for own in listed.values() for one in own})
        now_ms = time.time_ns() // 1_000_000
        hanging: list[HangingTransaction] = []
        for name, found in self.describe_transactions(names).items():
            age_ms = now_ms - found.transaction_start_time_ms
            if found.state in _OVER or found.transaction_start_time_ms < 0:
                continue
            if age_ms >= max_transaction_timeout_ms + _GRACE_MS:
                hanging.append(
                    {
                        "transactional_id": name,
                        "producer_id": found.producer_id,
                        "producer_epoch": found.producer_epoch,
                        "state": found.state.value,
                        "age_ms": age_ms,
                        "coordinator_id": found.coordinator_id,
                        "topic_partitions": sorted(found.topic_partitions),
                    }
                )
        return hanging
