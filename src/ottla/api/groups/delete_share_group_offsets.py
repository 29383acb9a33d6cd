"""DeleteShareGroupOffsets (key 92), version 0.

Have a share group without members forget topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.share.requests import require_share_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException
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

    def name(topic_id: bytes) -> str:
        topic = broker.image.topics.by_id.get(topic_id)
        return "" if topic is None else topic.name

    broker.share.groups.delete_offsets(request, name, ctx.respond, failed)
    return PARKED


API = Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, handle, needs=BY_HANDLER)
