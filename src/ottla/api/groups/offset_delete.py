"""OffsetDelete (key 47), version 0.

Deletes offsets of a group, for topics that no member reads.
"""

from __future__ import annotations

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse

_RequestTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
_ResponseTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(
    broker: Broker, ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Outcome:
    require_group_id(request.group_id)
    require(broker, ctx, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.name for topic in request.topics))
    known: list[_RequestTopic] = []
    refused: list[_ResponseTopic] = []
    by_name = broker.image.topics.by_name
    for topic in request.topics:
        if topic.name in denied:
            refused.append(_refused(topic.name, topic.partitions, NOT_AUTHORIZED.code))
            continue
        image = by_name.get(topic.name)
        existing = [
            p for p in topic.partitions if image is not None and p.partition_index in image.partitions
        ]
        missing = [p for p in topic.partitions if p not in existing]
        if existing:
            known.append(_RequestTopic(name=topic.name, partitions=existing))
        if missing:
            refused.append(_refused(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    accepted = OffsetDeleteRequest(group_id=request.group_id, topics=known)

    def done(response: OffsetDeleteResponse) -> None:
        response.topics = _joined([*response.topics, *refused])
        ctx.respond(response)

    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.commits.delete(accepted),
        done,
        lambda error: ctx.respond(OffsetDeleteResponse(error_code=error.code)),
    )
    return PARKED


def _refused(
    topic: TopicName,
    partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition],
    code: ErrorCode,
) -> _ResponseTopic:
    return _ResponseTopic(
        name=topic,
        partitions=[
            OffsetDeleteResponse.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=code,
            )
            for partition in partitions
        ],
    )


def _joined(topics: list[_ResponseTopic]) -> list[_ResponseTopic]:
    """One entry per topic."""
    by_name: dict[TopicName, _ResponseTopic] = {}
    for topic in topics:
        known = by_name.get(topic.name)
        if known is None:
            by_name[topic.name] = topic
        else:
            known.partitions.extend(topic.partitions)
    return list(by_name.values())


API = Api(ApiKey.OFFSET_DELETE, handle, needs=BY_HANDLER)
