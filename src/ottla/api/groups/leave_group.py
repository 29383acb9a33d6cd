"""LeaveGroup (key 13), versions 0-5.

Removes members from a classic group; an administrator may remove static members by their instance id.

1 adds the throttle time; 3 has several members, by member id or instance id; 4 is flexible; 5 adds the reason.
"""

from __future__ import annotations

from typing import Final

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import LeaveGroupRequest, LeaveGroupResponse

_MEMBERS_FROM: Final = 3


def handle(broker: Broker, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Outcome:
    require_group_id(request.group_id)
    if ctx.version < _MEMBERS_FROM:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    info = info_of(ctx)
    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.classic.leave(info, request, now_ms),
        lambda response: ctx.respond(_fit(ctx, response)),
        lambda error: ctx.respond(_fit(ctx, _failed(request, error))),
    )
    return PARKED


def _fit(ctx: RequestContext, response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Before version 3 the error of the one member is that of the response."""
    if ctx.version < _MEMBERS_FROM and len(response.members) == 1:
        return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
    return response


def _failed(request: LeaveGroupRequest, error: ApiException) -> LeaveGroupResponse:
    if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error.code)
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error.code,
            )
            for member in request.members
        ]
    )


API = Api(ApiKey.LEAVE_GROUP, handle, needs=(Right(AclOperation.READ, ResourceType.GROUP, "group_id"),))
