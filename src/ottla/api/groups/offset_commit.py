"""OffsetCommit (key 8), versions 2-10.

Keep how far a group has come.

2-4  say how long the offsets are to be kept
3    adds the throttle time
6    adds the leader epoch
7    adds the group instance id
8    is flexible
9    members of consumer groups (KIP-848) may commit; GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH may be told
10   has topic ids in place of names
"""

from __future__ import annotations

from typing import Final

from ottla.api.base import BY_HANDLER, PARKED, Api, Message, Outcome, RequestContext
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.uuid import ZERO_UUID

_TOPIC_IDS_FROM: Final = 10


def handle(
    broker: Broker, ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Outcome:
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

    def done(response: Message) -> None:
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


def _split(broker: Broker, ctx: RequestContext, request: Message) -> tuple[list[Message], list[Message]]:
    """The topics with the partitions that exist, name and id filled in, and answers for the others."""
    topics = broker.image.topics
    by_id = ctx.version >= _TOPIC_IDS_FROM
    known, refused = [], []
    for topic in request.topics:
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refusal(topic.name, topic.topic_id, topic.partitions, code))
            continue
        topic.name, topic.topic_id = image.name, image.id
        missing = [p for p in topic.partitions if p.partition_index not in image.partitions]
        if missing:
            refused.append(_refusal(image.name, image.id, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            there = [p for p in topic.partitions if p.partition_index in image.partitions]
            if not there:
                continue
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(
                name=image.name, topic_id=image.id, partitions=there
            )
        known.append(topic)
    return known, refused


def _refusal(name: str, topic_id: bytes, partitions: list[Message], code: ErrorCode) -> Message:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in partitions
        ],
    )


def _joined(topics: list[Message]) -> list[Message]:
    """One entry per topic. Those given are left as they are: the answer of the coordinator is not ours to change."""
    by_key: dict[tuple[str, bytes], list[Message]] = {}
    for topic in topics:
        by_key.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    return [
        OffsetCommitResponse.OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
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
