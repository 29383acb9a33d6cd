"""Heartbeat (key 12), versions 0-4.

A member of a classic group shows that it is alive, and learns whether the group is rebalancing.

1 adds the throttle time; 3 the group instance id; 4 is flexible.
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
from ottla.wire.messages import HeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages import HeartbeatRequest


def handle(broker: Broker, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Outcome:
    require_group_id(request.group_id)
    info = info_of(ctx)

    def failed(error: ApiException) -> None:
        # While the group is loaded, its members count as alive.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ctx.respond(HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code))

    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.classic.heartbeat(info, request, now_ms),
        ctx.respond,
        failed,
    )
    return PARKED


API = Api(ApiKey.HEARTBEAT, handle, needs=(Right(AclOperation.READ, ResourceType.GROUP, "group_id"),))
