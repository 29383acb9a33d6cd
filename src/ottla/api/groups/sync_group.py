"""SyncGroup (key 14), versions 0-5.

The leader of a classic group sends the assignment, and every member receives its part.

1 adds the throttle time; 3 the group instance id; 4 is flexible; 5 names protocol type and protocol, which are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import SyncGroupResponse

if TYPE_CHECKING:
    from ottla.wire.messages import SyncGroupRequest

_PROTOCOL_REQUIRED_FROM = 5


def handle(broker: Broker, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Outcome:
    require_group_id(request.group_id)
    if ctx.version >= _PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise ApiException(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Protocol type and protocol name are missing"
        )
    info = info_of(ctx)
    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.classic.sync(info, request, now_ms),
        ctx.respond,
        lambda error: ctx.respond(SyncGroupResponse(error_code=error.code)),
    )
    return PARKED


API = Api(ApiKey.SYNC_GROUP, handle, needs=(Right(AclOperation.READ, ResourceType.GROUP, "group_id"),))
