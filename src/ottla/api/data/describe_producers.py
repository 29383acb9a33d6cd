"""DescribeProducers (61): the idempotent and transactional producers that partitions know of.

0   flexible from the start
"""

from __future__ import annotations

from ottla.api.base import Api, Message, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DescribeProducersResponse as Response


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Message:
    return Response(
        topics=[
            Response.TopicResponse(
                name=topic.name,
                partitions=[_describe(broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(broker: Broker, topic: str, index: int) -> Message:
    try:
        producers = broker.replicas.partition(topic, index).local_log().producers.active
    except ApiException as error:
        return _failed(index, error)
    return Response.PartitionResponse(
        partition_index=index,
        active_producers=[
            Response.ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.current_txn_first_offset,
            )
            for state in producers.values()
        ],
    )


def _failed(index: int, error: ApiException) -> Message:
    return Response.PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message
    )


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return Response(
        topics=[
            Response.TopicResponse(
                name=topic.name, partitions=[_failed(index, error) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


API = Api(key=ApiKey.DESCRIBE_PRODUCERS, min_version=0, max_version=0, handle=handle, on_error=on_error)
