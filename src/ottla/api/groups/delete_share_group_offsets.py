"""DeleteShareGroupOffsets (key 92), version 0.

Deletes topics of a share group without members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.share.requests import require_share_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException
from ottla.ids import TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DeleteShareGroupOffsetsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DeleteShareGroupOffsetsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Outcome:
    require_share_groups(broker)
    require_group_id(request.group_id)

    def failed(error: ApiException) -> None:
        ctx.respond(DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message))

    def name_of(topic_id: bytes) -> TopicName:
        topic = broker.image.topics.by_id.get(topic_id)
        return TopicName("") if topic is None else topic.name

    broker.share.groups.delete_offsets(request, name_of, ctx.respond, failed)
    return PARKED


API = Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, handle, needs=BY_HANDLER)
