"""OffsetDelete (key 47), version 0.

Forget offsets of a group, for topics that none of its members reads.
"""

from __future__ import annotations

from ottla.api.base import BY_HANDLER, PARKED, Api, Message, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse


def handle(
    broker: Broker, ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Outcome:
    require_group_id(request.group_id)
    known, refused = [], []
    by_name = broker.image.topics.by_name
    for topic in request.topics:
        image = by_name.get(topic.name)
        there = [p for p in topic.partitions if image is not None and p.partition_index in image.partitions]
        missing = [p for p in topic.partitions if p not in there]
        if there:
            known.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=there))
        if missing:
            refused.append(_unknown(topic.name, missing))
    asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)

    def done(response: Message) -> None:
        response.topics = _joined([*response.topics, *refused])
        ctx.respond(response)

    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.commits.delete(asked),
        done,
        lambda error: ctx.respond(OffsetDeleteResponse(error_code=error.code)),
    )
    return PARKED


def _unknown(topic: str, partitions: list[Message]) -> Message:
    return OffsetDeleteResponse.OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            OffsetDeleteResponse.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for partition in partitions
        ],
    )


def _joined(topics: list[Message]) -> list[Message]:
    """One entry per topic."""
    by_name: dict[str, Message] = {}
    for topic in topics:
        known = by_name.get(topic.name)
        if known is None:
            by_name[topic.name] = topic
        else:
            known.partitions.extend(topic.partitions)
    return list(by_name.values())


API = Api(ApiKey.OFFSET_DELETE, handle, needs=BY_HANDLER)
