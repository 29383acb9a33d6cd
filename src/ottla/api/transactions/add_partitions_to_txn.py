"""AddPartitionsToTxn (key 24), versions 0-5.

Adds partitions to a transaction, or verifies that they are part of it.

0-3  one transaction, from its producer; 2 knows PRODUCER_FENCED, 3 is flexible
4    several transactions, from a broker that has batches of them; `verify_only` verifies without adding
5    KIP-890: the sending broker can handle TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import denied_topics
from ottla.api.transactions.errors import known_to
from ottla.broker.services import Broker
from ottla.coordinator.transaction.state import EPOCH_BUMP_VERSION
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName, TransactionalId
from ottla.log.types import TopicPartition
from ottla.metadata.topic_names import is_internal
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_BATCHED_FROM: Final = 4
_FENCED_FROM: Final = 2

Results = Mapping[TopicPartition, ErrorCode]
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


def handle(
    broker: Broker, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Outcome:
    if ctx.version >= _BATCHED_FROM:
        # Brokers alone send these versions.
        require(broker, ctx, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    else:
        transactional_id = request.v3_and_below_transactional_id
        require(broker, ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    transactions = _transactions(ctx, request)
    results: dict[TransactionalId, Results] = {}

    def settled(transactional_id: TransactionalId, of_transaction: Results) -> None:
        results[transactional_id] = of_transaction
        if len(results) == len(transactions):
            ctx.respond(_response(ctx, results))

    if not transactions:
        return _response(ctx, results)
    for transaction in transactions.values():
        _one(broker, ctx, transaction, partial(settled, transaction.transactional_id))
    return PARKED


def _transactions(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> dict[TransactionalId, _Transaction]:
    """The request's transactions by id, in the form of version 4."""
    if ctx.version >= _BATCHED_FROM:
        return {transaction.transactional_id: transaction for transaction in request.transactions}
    transaction = _Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return {transaction.transactional_id: transaction}


def _one(
    broker: Broker, ctx: RequestContext, transaction: _Transaction, settled: Callable[[Results], None]
) -> None:
    partitions = [
        TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
    ]
    refused = {}
    denied: set[str | bytes] = set()
    if ctx.version < _BATCHED_FROM:
        topics = (topic.name for topic in transaction.topics)
        denied = denied_topics(broker, ctx, AclOperation.WRITE, topics)
    for tp in partitions:
        topic = broker.image.topics.by_name.get(tp.topic)
        if tp.topic in denied or (ctx.version < _BATCHED_FROM and is_internal(tp.topic)):
            # Only brokers write to these topics in a transaction.
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or tp.partition not in topic.partitions:
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        settled({**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **refused})
        return

    def failed(error: ApiException) -> None:
        settled(dict.fromkeys(partitions, known_to(error.code, ctx.version, fenced_from=_FENCED_FROM)))

    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            broker.transactions.verify_partitions(*producer, partitions, settled, failed)
        else:
            client_version = EPOCH_BUMP_VERSION if ctx.version >= _BATCHED_FROM else 0
            broker.transactions.add_partitions(
                *producer,
                partitions,
                client_version,
                lambda _: settled(dict.fromkeys(partitions, ErrorCode.NONE)),
                failed,
            )
    except ApiException as error:
        failed(error)


def _response(ctx: RequestContext, results: Mapping[TransactionalId, Results]) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse
    by_transaction = []
    for transactional_id, of_transaction in results.items():
        by_topic: dict[TopicName, list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]] = {}
        for tp, code in of_transaction.items():
            by_topic.setdefault(tp.topic, []).append(
                response.AddPartitionsToTxnPartitionResult(
                    partition_index=tp.partition, partition_error_code=code
                )
            )
        topics = [
            response.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=partitions)
            for topic, partitions in by_topic.items()
        ]
        by_transaction.append(
            response.AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        )
    if ctx.version < _BATCHED_FROM:
        return response(results_by_topic_v3_and_below=by_transaction[0].topic_results)
    return response(results_by_transaction=by_transaction)


def on_error(
    ctx: RequestContext, request: AddPartitionsToTxnRequest, error: ApiException
) -> AddPartitionsToTxnResponse:
    if ctx.version >= _BATCHED_FROM:
        return AddPartitionsToTxnResponse(error_code=error.code)
    return _response(
        ctx,
        {
            request.v3_and_below_transactional_id: {
                TopicPartition(topic.name, index): error.code
                for topic in request.v3_and_below_topics
                for index in topic.partitions
            }
        },
    )


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, handle, on_error, needs=BY_HANDLER)
