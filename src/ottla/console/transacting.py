"""Records to several partitions as one transaction: all of them can be read, or none."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.admin.errors import raise_for
from ottla.errors import ApiException
from ottla.ids import ProducerId, TopicName, TransactionalId
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition
    from ottla.wire.messages import InitProducerIdResponse

_logger = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000
_BATCH_BYTES: Final = 900_000
# The last versions in which a client names its partitions before it writes to them.
_ADD, _PRODUCE, _END = 3, 11, 4


def write_together(cluster: Cluster, records: Mapping[Partition, Sequence[Record]]) -> None:
    """Write records by partition in one transaction; if anything fails, none of them can be read."""
    name = TransactionalId(f"ottla-console-{uuid4().hex}")

    def begin() -> InitProducerIdResponse:
        coordinator = cluster.coordinator_connection(name, CoordinatorType.TRANSACTION)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
        answer = cluster.ask_on(coordinator, request)
        raise_for(answer.error_code, None, f"the transaction {name}")
        return answer

    begun = cluster.retrying(begin)
    producer = ProducerId(begun.producer_id), begun.producer_epoch
    try:
        cluster.retrying(lambda: _add(cluster, name, producer, list(records)))
        for partition, items in records.items():
            sequence = 0
            for part in _batches(items):
                _produce(cluster, name, producer, partition, sequence, part)
                sequence += len(part)
        cluster.retrying(lambda: _end(cluster, name, producer, committed=True))
    except ApiException:
        try:
            _end(cluster, name, producer, committed=False)
        except ApiException as error:
            _logger.info("The transaction %s ends by its timeout: %s", name, error.message)
        raise


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        own = len(record.key or b"") + len(record.value or b"") + 200
        if part and size + own > _BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(record)
        size += own
    if part:
        yield part


def _add(
    cluster: Cluster, name: TransactionalId, producer: tuple[ProducerId, int], partitions: list[Partition]
) -> None:
    kind = AddPartitionsToTxnRequest
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    request = kind(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            kind.AddPartitionsToTxnTopic(name=TopicName(topic), partitions=numbers)
            for topic, numbers in by_topic.items()
        ],
    )
    coordinator = cluster.coordinator_connection(name, CoordinatorType.TRANSACTION)
    answer = cluster.ask_on(coordinator, request, _ADD)
    for result in answer.results_by_topic_v3_and_below:
        for each in result.results_by_partition:
            raise_for(each.partition_error_code, None, f"{result.name}-{each.partition_index}")


def _produce(
    cluster: Cluster,
    name: TransactionalId,
    producer: tuple[ProducerId, int],
    partition: Partition,
    sequence: int,
    records: Sequence[Record],
) -> None:
    kind = ProduceRequest
    topic, number = partition
    batch = build_batch(
        [
            Record(index, each.timestamp, each.key, each.value, each.headers)
            for index, each in enumerate(records)
        ],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )
    data = kind.TopicProduceData(
        name=TopicName(topic), partition_data=[kind.PartitionProduceData(index=number, records=batch)]
    )
    request = kind(transactional_id=name, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])

    def ask() -> None:
        answer = cluster.ask_on(cluster.leader(topic, number), request, _PRODUCE)
        (part,) = answer.responses[0].partition_responses
        raise_for(part.error_code, part.error_message, f"{topic}-{number}")

    # The sequence makes a second attempt harmless.
    cluster.retrying(ask)


def _end(
    cluster: Cluster, name: TransactionalId, producer: tuple[ProducerId, int], *, committed: bool
) -> None:
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    coordinator = cluster.coordinator_connection(name, CoordinatorType.TRANSACTION)
    raise_for(cluster.ask_on(coordinator, request, _END).error_code, None, f"the end of {name}")
