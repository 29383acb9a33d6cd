"""DeleteShareGroupOffsets (key 92), version 0.

Deletes topics of a share group without members.
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
from ottla.ids import TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DeleteShareGroupOffsetsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DeleteShareGroupOffsetsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Outcome:
    require_share_groups(broker)
    require_group_id(request.group_id)
    require(broker, ctx, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.topic_name for topic in request.topics))
    refused = [_denied(topic) for topic in request.topics if topic.topic_name in denied]
    request.topics = [topic for topic in request.topics if topic.topic_name not in denied]

    def done(response: DeleteShareGroupOffsetsResponse) -> None:
        response.responses += refused
        ctx.respond(response)

    def failed(error: ApiException) -> None:
        ctx.respond(DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message))

    def name_of(topic_id: bytes) -> TopicName:
        topic = broker.image.topics.by_id.get(topic_id)
        return TopicName("") if topic is None else topic.name

    broker.share.groups.delete_offsets(request, name_of, done, failed)
    return PARKED


def _denied(
    topic: DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic,
) -> DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        error_code=NOT_AUTHORIZED.code,
        error_message=NOT_AUTHORIZED.message,
    )


API = Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, handle, needs=BY_HANDLER)
