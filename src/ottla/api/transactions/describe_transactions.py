"""DescribeTransactions (key 65), version 0.

The state of transactional ids.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.transaction.state import TransactionMetadata
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DescribeTransactionsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeTransactionsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Outcome:
    ids = request.transactional_ids
    states: list[Message | None] = [None] * len(ids)
    missing = len(ids)

    def settled(index: int, state: Message) -> None:
        nonlocal missing
        states[index] = state
        missing -= 1
        if not missing:
            ctx.respond(DescribeTransactionsResponse(transaction_states=states))

    def found(index: int, txn: TransactionMetadata | None) -> None:
        settled(index, _unknown(ids[index]) if txn is None else _state(txn))

    def failed(index: int, error: ApiException) -> None:
        settled(index, _error(ids[index], error.code))

    if not ids:
        return DescribeTransactionsResponse()
    for index, transactional_id in enumerate(ids):
        try:
            broker.transactions.describe(transactional_id, partial(found, index), partial(failed, index))
        except ApiException as error:
            failed(index, error)
    return PARKED


def _error(transactional_id: str, code: ErrorCode) -> Message:
    return DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id, error_code=code)


def _unknown(transactional_id: str) -> Message:
    return _error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def _state(txn: TransactionMetadata) -> Message:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(txn.partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return DescribeTransactionsResponse.TransactionState(
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


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, handle, on_error)
