"""DescribeTopicPartitions (key 75), version 0.

Topics in pages, with their eligible leader replicas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.api.authorization import allowed, authorized_operations, split
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.cluster.partitions import ListenerView
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import TopicImage, TopicsImage
from ottla.metadata.topic_names import is_internal, why_invalid
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType

_last: tuple[TopicsImage | None, list[TopicName]] = None, []

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
    named = {topic.name for topic in request.topics}
    denied: list[TopicName] = []
    names: Iterable[TopicName]
    if named:
        requested, denied = split(
            broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, named, lambda name: name
        )
        names = sorted(name for name in requested if name >= first)
        _check_cursor(request, names)
    else:
        _check_cursor(request, ())
        names = _visible(broker, ctx, first)
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
            operations = authorized_operations(broker, ctx, ResourceType.TOPIC, name)
            answer.topics.append(_absent(name, operations))
            continue
        end = min(len(topic.partitions), start + remaining)
        operations = authorized_operations(broker, ctx, ResourceType.TOPIC, name)
        answer.topics.append(_topic(view, topic, start, end, operations))
        if end < len(topic.partitions):
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(end - start, 0)
    if named:
        # After all others, so that their place tells nothing.
        answer.topics += [_denied(name) for name in sorted(denied)]
    return answer


def _visible(broker: Broker, ctx: RequestContext, first: str) -> Iterator[TopicName]:
    """The topics from a name on that the client may see. A page ends before most of them are judged."""
    names = _sorted_names(broker.image.topics)
    for at in range(bisect_left(names, first), len(names)):
        if allowed(broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, names[at], log_denied=False):
            yield names[at]


def _sorted_names(topics: TopicsImage) -> list[TopicName]:
    """The names of all topics in order, kept while the topics stay the same: a client asks for page after page."""
    global _last
    known, names = _last
    if known is not topics:
        names = sorted(topics.by_name)
        _last = topics, names
    return names


def _denied(name: TopicName) -> Topic:
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal(name)
    )


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


def _topic(view: ListenerView, topic: TopicImage, start: int, end: int, operations: int) -> Topic:
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
        topic_authorized_operations=operations,
    )


def _absent(name: TopicName, operations: int) -> Topic:
    error = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations,
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
