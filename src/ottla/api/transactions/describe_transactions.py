"""DescribeTransactions (key 65), version 0.

Describes the state of transactional ids.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import denied_topics
from ottla.broker.services import Broker
from ottla.coordinator.transaction.state import TransactionMetadata
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName, TransactionalId
from ottla.promise import Gather
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DescribeTransactionsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeTransactionsRequest

_State = DescribeTransactionsResponse.TransactionState


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Outcome:
    ids = request.transactional_ids

    def all_there(states: list[_State]) -> None:
        ctx.respond(DescribeTransactionsResponse(transaction_states=states))

    gather = Gather(len(ids), all_there)

    def found(index: int, txn: TransactionMetadata | None) -> None:
        state = _error(ids[index], ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) if txn is None else _state(txn)
        topics = (topic.topic for topic in state.topics)
        hidden = denied_topics(broker, ctx, AclOperation.DESCRIBE, topics)
        state.topics = [topic for topic in state.topics if topic.topic not in hidden]
        gather.put(index, state)

    def failed(index: int, error: ApiException) -> None:
        gather.put(index, _error(ids[index], error.code))

    for index, transactional_id in enumerate(ids):
        try:
            require(broker, ctx, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            broker.transactions.describe(transactional_id, partial(found, index), partial(failed, index))
        except ApiException as error:
            failed(index, error)
    return PARKED


def _error(transactional_id: TransactionalId, code: ErrorCode) -> _State:
    return _State(transactional_id=transactional_id, error_code=code)


def _state(txn: TransactionMetadata) -> _State:
    by_topic: dict[TopicName, list[int]] = {}
    for tp in sorted(txn.partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return _State(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.title,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.started_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )


def on_error(
    ctx: RequestContext, request: DescribeTransactionsRequest, error: ApiException
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_error(each, error.code) for each in request.transactional_ids]
    )


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, handle, on_error, needs=BY_HANDLER)
