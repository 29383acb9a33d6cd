"""The admin client's part about transactions: which are open, since when, and how one that hangs is ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ottla.client.admin_topic_view import TopicView, by_topic
from ottla.client.errors import for_code
from ottla.client.structs import TopicPartition
from ottla.wire import messages as m

_TRANSACTION: Final = 1
_GRACE_MS: Final = 5 * 60 * 1000
"""So much older than the longest timeout is a transaction that hangs, as Kafka's own tool has it."""


class TransactionState(StrEnum):
    """The states of a transaction, in the coordinator's words."""

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
    """A transaction in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transaction as its coordinator knows it."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """A producer as a partition knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that a partition knows."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """Whose open transaction shall end, and where; a coordinator epoch of -1 is not checked."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class TransactionAdmin(TopicView):
    """Look at transactions and producers, and end what hangs."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactions that each broker coordinates."""
        request = m.ListTransactionsRequest(
            state_filters=[TransactionState(one).value for one in state_filters or ()],
            producer_id_filters=list(producer_id_filters or ()),
        )
        if duration_filter_ms is not None:
            request.duration_filter = int(duration_filter_ms)
        if transactional_id_pattern is not None:
            request.transactional_id_pattern = transactional_id_pattern
        found = {}
        for broker in self._connections.broker_ids() if broker_ids is None else broker_ids:
            answer, _ = self._connections.ask(request, broker)
            if answer.error_code:
                raise for_code(answer.error_code)(f"broker {broker}")
            found[broker] = [
                TransactionListing(
                    one.transactional_id, one.producer_id, TransactionState(one.transaction_state)
                )
                for one in answer.transaction_states
            ]
        return found

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Transactions by their ids, with the partitions that they have written to."""
        found = {}
        for name in transactional_ids:
            coordinator = self._connections.coordinator(name, _TRANSACTION)
            request = m.DescribeTransactionsRequest(transactional_ids=[name])
            answer, _ = self._connections.ask(request, coordinator)
            for one in answer.transaction_states:
                if one.error_code:
                    raise for_code(one.error_code)(f"transactional id '{one.transactional_id}'")
                found[one.transactional_id] = TransactionDescription(
                    coordinator,
                    TransactionState(one.transaction_state),
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_timeout_ms,
                    one.transaction_start_time_ms,
                    {
                        TopicPartition(topic.topic, number)
                        for topic in one.topics
                        for number in topic.partitions
                    },
                )
        return found

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The producers that partitions know, as their leaders or one broker tell."""
        wanted = list(partitions)
        asked = self._by_leader(wanted) if broker_id is None else {broker_id: wanted}
        found = {}
        for node, own in asked.items():
            kind = m.DescribeProducersRequest
            topics = [
                kind.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(own).items()
            ]
            answer, _ = self._connections.ask(kind(topics=topics), node)
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code:
                        where = f"{topic.name}-{one.partition_index}"
                        raise for_code(one.error_code)(one.error_message or where)
                    found[TopicPartition(topic.name, one.partition_index)] = PartitionProducerState(
                        [_producer(each) for each in one.active_producers]
                    )
        return found

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End an open transaction on one partition, without its coordinator."""
        kind = m.WriteTxnMarkersRequest
        tp = spec.topic_partition
        marker = kind.WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            transaction_result=False,
            topics=[kind.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            coordinator_epoch=spec.coordinator_epoch,
        )
        (leader,) = self._by_leader([tp])
        answer, _ = self._connections.ask(kind(markers=[marker]), leader)
        for topic in (topic for each in answer.markers for topic in each.topics):
            for one in topic.partitions:
                if one.error_code:
                    raise for_code(one.error_code)(f"{tp.topic}-{tp.partition}")

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """Transactions that are open for longer than any may be."""
        listed = self.list_transactions(broker_ids)
        names = sorted({one.transactional_id for own in listed.values() for one in own})
        now_ms = time.time_ns() // 1_000_000
        hanging = []
        for name, told in self.describe_transactions(names).items():
            age_ms = now_ms - told.transaction_start_time_ms
            if told.state in _OVER or told.transaction_start_time_ms < 0:
                continue
            if age_ms >= max_transaction_timeout_ms + _GRACE_MS:
                hanging.append(
                    {
                        "transactional_id": name,
                        "producer_id": told.producer_id,
                        "producer_epoch": told.producer_epoch,
                        "state": told.state.value,
                        "age_ms": age_ms,
                        "coordinator_id": told.coordinator_id,
                        "topic_partitions": sorted(told.topic_partitions),
                    }
                )
        return hanging


def _producer(told: Any) -> ProducerState:
    return ProducerState(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        told.current_txn_start_offset,
    )
