"""DescribeTopicPartitions (key 75), version 0.

Topics in pages, with their eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.cluster.nodes import TOPIC_OPERATIONS
from ottla.api.cluster.partitions import ListenerView
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import TopicImage
from ottla.metadata.topic_names import is_internal, why_invalid
from ottla.wire import messages
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    Topic = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


def handle(
    broker: Broker, ctx: RequestContext, request: messages.DescribeTopicPartitionsRequest
) -> messages.DescribeTopicPartitionsResponse:
    response = messages.DescribeTopicPartitionsResponse
    image = broker.image
    existing = image.topics.by_name
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    requested = {topic.name for topic in request.topics} or existing.keys()
    names = sorted(name for name in requested if name >= first)
    _check_cursor(request, names)
    remaining = max(
        min(broker.config.int("max.request.partition.size.limit"), request.response_partition_limit), 1
    )
    view = ListenerView(image, ctx.listener_name, broker.peers.gone())
    answer = response(topics=[])
    for name in names:
        start = cursor.partition_index if name == first and cursor is not None else 0
        if remaining == 0:
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=0)
            break
        topic = existing.get(name)
        if topic is None:
            answer.topics.append(_absent(name))
            continue
        end = min(len(topic.partitions), start + remaining)
        answer.topics.append(_topic(view, topic, start, end))
        if end < len(topic.partitions):
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(end - start, 0)
    return answer


def _check_cursor(request: messages.DescribeTopicPartitionsRequest, names: Collection[str]) -> None:
    cursor = request.cursor
    if cursor is None:
        return
    if request.topics and cursor.topic_name not in names:
        raise ApiException(
            ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not among the topics"
        )
    if cursor.partition_index < 0:
        raise ApiException(
            ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative"
        )


def _topic(view: ListenerView, topic: TopicImage, start: int, end: int) -> Topic:
    response = messages.DescribeTopicPartitionsResponse
    partitions = []
    for index in range(start, end):
        partition = topic.partitions[index]
        partitions.append(
            response.DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=view.leader(partition),
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=view.offline(partition),
            )
        )
    return response.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _absent(name: TopicName) -> Topic:
    error = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def on_error(
    ctx: RequestContext, request: messages.DescribeTopicPartitionsRequest, error: ApiException
) -> messages.DescribeTopicPartitionsResponse:
    response = messages.DescribeTopicPartitionsResponse
    return response(
        topics=[
            response.DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
            for topic in request.topics
        ]
    )


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle, on_error, needs=BY_HANDLER)
