"""OffsetForLeaderEpoch (key 23), versions 2-4.

Where a leader epoch ended, so that clients and followers find where logs went apart.

2   the leader epoch that the client believes in is checked
3   replica id
4   flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import cluster_allowed
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from ottla.wire.messages import OffsetForLeaderEpochRequest


def handle(
    broker: Broker, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    denied: set[str | bytes] = set()
    if not cluster_allowed(broker, ctx, AclOperation.CLUSTER_ACTION, log_denied=False):
        denied = denied_topics(broker, ctx, AclOperation.DESCRIBE, (topic.topic for topic in request.topics))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        partition=part.partition, error_code=NOT_AUTHORIZED.code
                    )
                    if topic.topic in denied
                    else _answer(broker, topic.topic, part)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    broker: Broker, topic: str, part: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=part.partition)
    try:
        partition = broker.replicas.find((topic, part.partition))
        partition.check_leader(part.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.local_log().end_offset_for_epoch(part.leader_epoch)
    except ApiException as error:
        answer.error_code = error.code
    return answer


def on_error(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest, error: ApiException
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        partition=part.partition, error_code=error.code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, handle, on_error, needs=BY_HANDLER)
