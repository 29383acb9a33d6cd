"""OffsetFetch (key 9), versions 1-10.

Returns the committed offsets of groups.

1-7  one group; from 2 on all of its offsets may be asked for, and an error may concern the whole
3    adds the throttle time
5    adds the leader epoch
6    is flexible
7    may ask to wait for open transactions (UNSTABLE_OFFSET_COMMIT)
8    has several groups
9    names the member and its epoch, which are checked for consumer groups (KIP-848)
10   has topic ids in place of names
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.api.authorization import allowed, refusal, split
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.promise import Gather
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import OffsetFetchRequest, OffsetFetchResponse

_GROUP_ERROR_FROM: Final = 2
_BATCHED_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_WantedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_Topic = OffsetFetchResponse.OffsetFetchResponseTopics


def handle(broker: Broker, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | Outcome:
    groups = _groups_of(ctx, request)
    gather: Gather[_Group] = Gather(len(groups), lambda fetched: ctx.respond(_response(ctx, fetched)))
    for index, group in enumerate(groups):
        if not allowed(broker, ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            gather.put(index, _failed(ctx, group, refusal(ResourceType.GROUP)))
            continue
        _fetch(broker, ctx, group, request.require_stable, partial(gather.put, index))
    return PARKED


def _groups_of(ctx: RequestContext, request: OffsetFetchRequest) -> list[_WantedGroup]:
    """The groups of the request; before version 8 there is one."""
    if ctx.version >= _BATCHED_FROM:
        return list(request.groups)
    topics = None
    if request.topics is not None:
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopics
        topics = [
            topic_class(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [_WantedGroup(group_id=request.group_id, topics=topics)]


def _fetch(
    broker: Broker,
    ctx: RequestContext,
    group: _WantedGroup,
    require_stable: bool,
    put: Callable[[_Group], None],
) -> None:
    by_id = ctx.version >= _TOPIC_IDS_FROM
    wanted = group
    unknown: list[_Topic] = []
    if by_id and group.topics is not None:
        unknown, wanted = _named(broker, group)
    if wanted.topics is not None and broker.authorizer is not None:
        granted, denied = split(
            broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, wanted.topics, lambda topic: topic.name
        )
        unknown += [_topic_error(topic, NOT_AUTHORIZED.code) for topic in denied]
        wanted = _WantedGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=granted,
        )

    def done(response: _Group) -> None:
        if group.topics is None:
            topics = (topic.name for topic in response.topics)
            hidden = denied_topics(broker, ctx, AclOperation.DESCRIBE, topics)
            response.topics = [topic for topic in response.topics if topic.name not in hidden]
        if by_id and group.topics is None:
            response.topics = _with_ids(broker, response.topics)
        response.topics += unknown
        put(response)

    broker.groups.read(
        group.group_id,
        lambda shard, now_ms: shard.commits.fetch(wanted, require_stable),
        done,
        lambda error: put(_failed(ctx, group, error)),
    )


def _named(broker: Broker, group: _WantedGroup) -> tuple[list[_Topic], _WantedGroup]:
    """Responses for unknown topic ids, and the group with only the known topics, by name."""
    topics = broker.image.topics.by_id
    known, unknown = [], []
    for topic in group.topics or ():
        image = topics.get(topic.topic_id)
        if image is None:
            unknown.append(_topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = image.name
            known.append(topic)
    wanted = _WantedGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known
    )
    return unknown, wanted


def _with_ids(broker: Broker, topics: list[_Topic]) -> list[_Topic]:
    """The topics that have an id, with it; the response cannot name the others."""
    by_name = broker.image.topics.by_name
    found = []
    for topic in topics:
        image = by_name.get(topic.name)
        if image is not None:
            topic.topic_id = image.id
            found.append(topic)
    return found


def _topic_error(topic: OffsetFetchRequest.OffsetFetchRequestTopics, code: ErrorCode) -> _Topic:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
    )


def _failed(ctx: RequestContext, group: _WantedGroup, error: ApiException) -> _Group:
    """The error of a group; version 1 reports it for each partition."""
    if ctx.version >= _GROUP_ERROR_FROM:
        return _Group(group_id=group.group_id, error_code=error.code, topics=[])
    return _Group(
        group_id=group.group_id,
        error_code=error.code,
        topics=[_topic_error(topic, error.code) for topic in group.topics or ()],
    )


def _response(ctx: RequestContext, groups: list[_Group]) -> OffsetFetchResponse:
    if ctx.version >= _BATCHED_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            topic_class(
                name=topic.name,
                partitions=[
                    partition_class(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def on_error(ctx: RequestContext, request: OffsetFetchRequest, error: ApiException) -> OffsetFetchResponse:
    groups = _groups_of(ctx, request)
    return _response(ctx, [_failed(ctx, group, error) for group in groups])


API = Api(ApiKey.OFFSET_FETCH, handle, on_error, needs=BY_HANDLER)
