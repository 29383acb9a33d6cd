"""JoinGroup (key 11), versions 0-9.

Joins a classic group, or its next generation.

1  adds the rebalance time-out (before: the session time-out)
2  adds the throttle time
4  a dynamic member without an id gets one (MEMBER_ID_REQUIRED) and has to join again with it
5  adds the group instance id of static members
6  is flexible
7  the response names the protocol type, and may have no protocol name
8  adds the reason
9  a static leader may have to skip the assignment
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import JoinGroupResponse

if TYPE_CHECKING:
    from ottla.wire.messages import JoinGroupRequest

_REBALANCE_TIMEOUT_FROM: Final = 1
_PROTOCOL_NAME_NULLABLE_FROM: Final = 7


def handle(broker: Broker, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Outcome:
    require_group_id(request.group_id)
    config = broker.config
    shortest, longest = (
        config.int("group.min.session.timeout.ms"),
        config.int("group.max.session.timeout.ms"),
    )
    if not shortest <= request.session_timeout_ms <= longest:
        raise ApiException(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"The session time-out {request.session_timeout_ms} ms is not between {shortest} and {longest}",
        )
    if ctx.version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    info = info_of(ctx)
    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.classic.join(info, request, now_ms),
        lambda response: ctx.respond(_fit(ctx, response)),
        lambda error: ctx.respond(_refused(ctx, error, "")),
    )
    return PARKED


def _fit(ctx: RequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """Before version 7 the protocol name cannot be null."""
    if response.protocol_name is None and ctx.version < _PROTOCOL_NAME_NULLABLE_FROM:
        response.protocol_name = ""
    return response


def on_error(ctx: RequestContext, request: JoinGroupRequest, error: ApiException) -> JoinGroupResponse:
    # As in Kafka, only a request that is invalid by itself is answered with its member.
    denied = error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    return _refused(ctx, error, "" if denied else request.member_id)


def _refused(ctx: RequestContext, error: ApiException, member_id: str) -> JoinGroupResponse:
    return _fit(
        ctx,
        JoinGroupResponse(
            error_code=error.code,
            generation_id=-1,
            protocol_name=None,
            leader="",
            member_id=member_id,
            members=[],
        ),
    )


API = Api(
    ApiKey.JOIN_GROUP, handle, on_error, needs=(Right(AclOperation.READ, ResourceType.GROUP, "group_id"),)
)
