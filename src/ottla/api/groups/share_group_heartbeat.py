"""ShareGroupHeartbeat (76): join, stay in and leave a share group (KIP-932). 1 is the first that stays."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.groups.requests import info_of
from ottla.api.share.requests import is_member_id, require_share_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.share.heartbeat import validate
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ShareGroupHeartbeatResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    require_share_groups(broker)
    if not is_member_id(request.member_id):
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    validate(request)

    def failed(error: ApiException) -> None:
        ctx.respond(ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message))

    broker.share.groups.heartbeat(info_of(ctx), request, ctx.respond, failed)
    return PARKED


API = Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, handle)
