"""OffsetCommit (key 8), versions 2-10.

Commits offsets of a group.

2-4  have a retention time
3    adds the throttle time
6    adds the leader epoch
7    adds the group instance id
8    is flexible
9    members of consumer groups (KIP-848) may commit; adds GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH
10   has topic ids in place of names
"""

from __future__ import annotations

from typing import Final

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.uuid import ZERO_UUID

_TOPIC_IDS_FROM: Final = 10

_RequestTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_ResponseTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_ResponsePartition = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(
    broker: Broker, ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Outcome:
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    known, refused = _split(broker, ctx, request)
    if not known:
        return OffsetCommitResponse(topics=refused)
    accepted = request
    if refused:
        accepted = OffsetCommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=known,
        )
    info = info_of(ctx)

    def done(response: OffsetCommitResponse) -> None:
        ctx.respond(
            OffsetCommitResponse(topics=_joined([*response.topics, *refused])) if refused else response
        )

    def failed(error: ApiException) -> None:
        ctx.respond(on_error(ctx, request, error))

    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.commits.commit(info, accepted, now_ms),
        done,
        failed,
    )
    return PARKED


def _split(
    broker: Broker, ctx: RequestContext, request: OffsetCommitRequest
) -> tuple[list[_RequestTopic], list[_ResponseTopic]]:
    """The topics with the partitions that exist, name and id filled in, and responses for the others."""
    topics = broker.image.topics
    by_id = ctx.version >= _TOPIC_IDS_FROM
    known: list[_RequestTopic] = []
    refused: list[_ResponseTopic] = []
    asked = (topic.topic_id if by_id else topic.name for topic in request.topics)
    denied = denied_topics(broker, ctx, AclOperation.READ, asked)
    for topic in request.topics:
        if (topic.topic_id if by_id else topic.name) in denied:
            refused.append(_refusal(topic.name, topic.topic_id, topic.partitions, NOT_AUTHORIZED.code))
            continue
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refusal(topic.name, topic.topic_id, topic.partitions, code))
            continue
        topic.name, topic.topic_id = image.name, image.id
        missing = [p for p in topic.partitions if p.partition_index not in image.partitions]
        if missing:
            refused.append(_refusal(image.name, image.id, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            existing = [p for p in topic.partitions if p.partition_index in image.partitions]
            if not existing:
                continue
            topic = _RequestTopic(name=image.name, topic_id=image.id, partitions=existing)
        known.append(topic)
    return known, refused


def _refusal(
    name: TopicName,
    topic_id: bytes,
    partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition],
    code: ErrorCode,
) -> _ResponseTopic:
    return _ResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            _ResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in partitions
        ],
    )


def _joined(topics: list[_ResponseTopic]) -> list[_ResponseTopic]:
    """One entry per topic. It leaves the given ones unchanged, since the coordinator caches its responses."""
    by_key: dict[tuple[TopicName, bytes], list[_ResponsePartition]] = {}
    for topic in topics:
        by_key.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    return [
        _ResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in by_key.items()
    ]


def on_error(ctx: RequestContext, request: OffsetCommitRequest, error: ApiException) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _refusal(topic.name, topic.topic_id or ZERO_UUID, topic.partitions, error.code)
            for topic in request.topics
        ]
    )


API = Api(ApiKey.OFFSET_COMMIT, handle, on_error, needs=BY_HANDLER)
