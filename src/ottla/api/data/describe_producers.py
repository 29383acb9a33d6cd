"""DescribeProducers (key 61), version 0.

The idempotent and transactional producers that partitions know of.

0   flexible from the start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.ids import ProducerId
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DescribeProducersResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeProducersRequest


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.name for topic in request.topics))
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _failed(index, NOT_AUTHORIZED)
                    if topic.name in denied
                    else _describe(broker, topic.name, index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(broker: Broker, topic: str, index: int) -> DescribeProducersResponse.PartitionResponse:
    try:
        producers = broker.replicas.find((topic, index)).local_log().producers.active
    except ApiException as error:
        return _failed(index, error)
    return DescribeProducersResponse.PartitionResponse(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=ProducerId(state.producer_id),
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.current_txn_first_offset,
            )
            for state in producers.values()
        ],
    )


def _failed(index: int, error: ApiException) -> DescribeProducersResponse.PartitionResponse:
    return DescribeProducersResponse.PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message
    )


def on_error(
    ctx: RequestContext, request: DescribeProducersRequest, error: ApiException
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name, partitions=[_failed(index, error) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.DESCRIBE_PRODUCERS, handle, on_error, needs=BY_HANDLER)
