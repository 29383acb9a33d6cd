"""DescribeShareGroupOffsets (key 90), versions 0-1.

Describes the offsets of share groups.

1 adds the lag: records after the start offset that have not reached a final state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed, refusal
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.share.requests import require_share_groups
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.ids import TopicName
from ottla.promise import Gather
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DescribeShareGroupOffsetsResponse

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.wire.messages import DescribeShareGroupOffsetsRequest, ReadShareGroupStateSummaryResponse

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
_Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition

_UNKNOWN: Final = -1


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Outcome:
    require_share_groups(broker)
    gather: Gather[_Group] = Gather(
        len(request.groups), lambda groups: ctx.respond(DescribeShareGroupOffsetsResponse(groups=groups))
    )
    for index, group in enumerate(request.groups):
        if not allowed(broker, ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            error = refusal(ResourceType.GROUP)
            refused = _Group(group_id=group.group_id, error_code=error.code, error_message=error.message)
            gather.put(index, refused)
            continue
        _describe(broker, ctx, group, partial(gather.put, index))
    return PARKED


def _describe(
    broker: Broker,
    ctx: RequestContext,
    wanted: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
    put: Callable[[_Group], None],
) -> None:
    topics: dict[bytes, list[int]] | None = None
    missing: list[_Topic] = []
    if wanted.topics is not None:
        topics = {}
        asked = (topic.topic_name for topic in wanted.topics)
        denied = denied_topics(broker, ctx, AclOperation.DESCRIBE, asked)
        for topic in wanted.topics:
            if topic.topic_name in denied:
                missing.append(
                    _Topic(
                        topic_name=topic.topic_name,
                        partitions=[
                            _Partition(
                                partition_index=index,
                                start_offset=_UNKNOWN,
                                error_code=NOT_AUTHORIZED.code,
                                error_message=NOT_AUTHORIZED.message,
                            )
                            for index in topic.partitions
                        ],
                    )
                )
                continue
            known = broker.image.topics.by_name.get(topic.topic_name)
            if known is not None:
                topics[known.id] = list(topic.partitions)
            else:
                missing.append(
                    _Topic(
                        topic_name=topic.topic_name,
                        partitions=[
                            _Partition(partition_index=index, start_offset=_UNKNOWN)
                            for index in topic.partitions
                        ],
                    )
                )

    def done(summary: ReadShareGroupStateSummaryResponse) -> None:
        by_id = broker.image.topics.by_id
        results = [
            (known, each.partitions) for each in summary.results if (known := by_id.get(each.topic_id))
        ]
        gather: Gather[_Topic] = Gather(len(results), answer)
        for index, (known, partitions) in enumerate(results):
            _topic(broker, known, partitions, partial(gather.put, index))

    def answer(found: list[_Topic]) -> None:
        if wanted.topics is None:
            shown = (topic.topic_name for topic in found)
            hidden = denied_topics(broker, ctx, AclOperation.DESCRIBE, shown)
            found = [topic for topic in found if topic.topic_name not in hidden]
        put(_Group(group_id=wanted.group_id, topics=[*found, *missing]))

    def failed(error: ApiException) -> None:
        put(_Group(group_id=wanted.group_id, error_code=error.code, error_message=error.message))

    broker.share.groups.describe_offsets(wanted.group_id, topics, done, failed)


def _topic(
    broker: Broker,
    known: TopicImage,
    summaries: list[ReadShareGroupStateSummaryResponse.PartitionResult],
    put: Callable[[_Topic], None],
) -> None:
    def done(partitions: list[_Partition]) -> None:
        put(_Topic(topic_name=known.name, topic_id=known.id, partitions=partitions))

    gather: Gather[_Partition] = Gather(len(summaries), done)
    for index, summary in enumerate(summaries):
        _partition(broker, known.name, summary, partial(gather.put, index))


def _partition(
    broker: Broker,
    topic: TopicName,
    summary: ReadShareGroupStateSummaryResponse.PartitionResult,
    put: Callable[[_Partition], None],
) -> None:
    if summary.error_code:
        put(_Partition(partition_index=summary.partition, start_offset=_UNKNOWN, lag=_UNKNOWN))
        return
    described = _Partition(
        partition_index=summary.partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=_UNKNOWN,
    )
    if summary.start_offset == _UNKNOWN or summary.delivery_complete_count == _UNKNOWN:
        put(described)
        return

    def done(end: int | ApiException) -> None:
        if isinstance(end, ApiException):
            put(_Partition(partition_index=summary.partition, error_code=end.code, error_message=end.message))
            return
        described.lag = end - summary.start_offset - summary.delivery_complete_count
        put(described)

    broker.share.partition_metadata.latest_offset(topic, summary.partition, done)


def on_error(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest, error: ApiException
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            _Group(group_id=group.group_id, error_code=error.code, error_message=error.message)
            for group in request.groups
        ]
    )


API = Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, handle, on_error, needs=BY_HANDLER)
