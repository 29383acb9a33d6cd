"""AlterShareGroupOffsets (key 91), version 0.

Restarts partitions of a share group without members at other offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.share.requests import require_share_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import AlterShareGroupOffsetsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterShareGroupOffsetsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Outcome:
    require_share_groups(broker)
    require_group_id(request.group_id)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.topic_name for topic in request.topics))
    refused = [_denied(topic) for topic in request.topics if topic.topic_name in denied]
    request.topics = [topic for topic in request.topics if topic.topic_name not in denied]

    def done(response: AlterShareGroupOffsetsResponse) -> None:
        response.responses += refused
        ctx.respond(response)

    def failed(error: ApiException) -> None:
        ctx.respond(AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message))

    broker.share.groups.alter_offsets(request, done, failed)
    return PARKED


def _denied(
    topic: AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition(
                partition_index=part.partition_index,
                error_code=NOT_AUTHORIZED.code,
                error_message=NOT_AUTHORIZED.message,
            )
            for part in topic.partitions
        ],
    )


API = Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, handle, needs=BY_HANDLER)
