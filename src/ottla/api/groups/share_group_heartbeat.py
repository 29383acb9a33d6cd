"""ShareGroupHeartbeat (key 76), version 1.

Joins a share group, stays in it or leaves it (KIP-932). 1 is the first stable version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.groups.requests import info_of
from ottla.api.share.requests import is_member_id, require_share_groups_silently
from ottla.broker.services import Broker
from ottla.coordinator.group.share.heartbeat import validate
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ShareGroupHeartbeatRequest


def handle(
    broker: Broker, ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Outcome:
    require_share_groups_silently(broker)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if denied_topics(broker, ctx, AclOperation.DESCRIBE, request.subscribed_topic_names or ()):
        raise NOT_AUTHORIZED
    if not is_member_id(request.member_id):
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    validate(request)

    def failed(error: ApiException) -> None:
        ctx.respond(ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None))

    broker.share.groups.heartbeat(info_of(ctx), request, ctx.respond, failed)
    return PARKED


API = Api(ApiKey.SHARE_GROUP_HEARTBEAT, handle, needs=BY_HANDLER)
