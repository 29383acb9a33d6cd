"""Transactions and producers: which are open, since when, and how to end one that hangs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.admin.errors import raise_for
from ottla.admin.partitions import P, Partition, by_topic, grouped_by_leader
from ottla.ids import ProducerId, TopicName, TransactionalId
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import (
        DescribeProducersResponse,
        DescribeTransactionsResponse,
        ListTransactionsResponse,
    )

    ListedTransaction = ListTransactionsResponse.TransactionState
    DescribedTransaction = DescribeTransactionsResponse.TransactionState
    ActiveProducer = DescribeProducersResponse.ProducerState

_SHORTEST_TIMEOUT_MS: Final = 1
"""Of the producer that takes a transactional id over in order to end its transaction."""


class OpenTransaction(NamedTuple):
    """A producer whose transaction is open on a partition."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def list_transactions(
    cluster: Cluster,
    broker_id: int,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    duration_ms: int | None = None,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids that a broker coordinates."""
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=[ProducerId(each) for each in producer_ids]
    )
    if duration_ms is not None:
        request.duration_filter = duration_ms
    if pattern is not None:
        request.transactional_id_pattern = pattern

    def ask() -> list[ListedTransaction]:
        response = cluster.ask(request, broker_id)
        raise_for(response.error_code, None, f"broker {broker_id}")
        return response.transaction_states

    return cluster.retrying(ask)


def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[int, DescribedTransaction]:
    """The coordinator and the state of a transactional id; ApiException for an unknown one."""
    return cluster.retrying(partial(_describe_transaction, cluster, TransactionalId(transactional_id)))


def _describe_transaction(
    cluster: Cluster, transactional_id: TransactionalId
) -> tuple[int, DescribedTransaction]:
    coordinator = cluster.coordinator(transactional_id, CoordinatorType.TRANSACTION)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    state = cluster.ask(request, coordinator).transaction_states[0]
    raise_for(state.error_code, None, f"transactional id '{transactional_id}'")
    return coordinator, state


def describe_producers(
    cluster: Cluster, partitions: Iterable[P], broker_id: int | None = None
) -> dict[Partition, list[ActiveProducer]]:
    """The producers that partitions know, from their leaders or from one broker."""
    wanted = list(partitions)
    by_broker = grouped_by_leader(cluster, wanted) if broker_id is None else {broker_id: wanted}
    kind = DescribeProducersRequest
    found: dict[Partition, list[ActiveProducer]] = {}
    for broker, own in by_broker.items():
        topics = [
            kind.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(own).items()
        ]
        for topic in cluster.ask(kind(topics=topics), broker).topics:
            for each in topic.partitions:
                raise_for(each.error_code, each.error_message, f"{topic.name}-{each.partition_index}")
                found[topic.name, each.partition_index] = each.active_producers
    return found


def abort_transaction(cluster: Cluster, transaction: OpenTransaction) -> None:
    """Write an abort marker to one partition without its coordinator. A coordinator epoch of -1 is not checked."""
    topic, number = transaction.partition
    (leader,) = grouped_by_leader(cluster, [transaction.partition])
    kind = WriteTxnMarkersRequest
    marker = kind.WritableTxnMarker(
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[kind.WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=[number])],
        coordinator_epoch=transaction.coordinator_epoch,
    )
    for result in cluster.ask(kind(markers=[marker]), leader).markers:
        for each in (one for part in result.topics for one in part.partitions):
            raise_for(each.error_code, None, f"{topic}-{number}")


def force_terminate(cluster: Cluster, transactional_id: str) -> None:
    """End the open transaction of a transactional id: take the id over with a new producer epoch."""
    name = TransactionalId(transactional_id)

    def take_over() -> None:
        coordinator = cluster.coordinator(name, CoordinatorType.TRANSACTION)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_SHORTEST_TIMEOUT_MS)
        raise_for(cluster.ask(request, coordinator).error_code, None, name)

    cluster.retrying(take_over)
