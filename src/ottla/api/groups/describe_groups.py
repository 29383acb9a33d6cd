"""DescribeGroups (key 15), versions 0-6.

Describes classic groups with their members.

1 adds the throttle time; 3 the authorized operations; 4 the group instance id; 5 is flexible; 6 has an error
message, and reports an unknown group as GROUP_ID_NOT_FOUND rather than as a dead group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import refusal
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.groups.requests import group_operations, split_groups
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.ids import GroupId
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeGroupsRequest

_ERROR_MESSAGE_FROM: Final = 6


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Outcome:
    wanted, denied = split_groups(broker, ctx, AclOperation.DESCRIBE, request.groups)

    def done(groups: list[DescribeGroupsResponse.DescribedGroup]) -> None:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = group_operations(
                    broker, ctx, group.group_id, request.include_authorized_operations
                )
        groups += [_failed(ctx, group_id, refusal(ResourceType.GROUP)) for group_id in denied]
        ctx.respond(DescribeGroupsResponse(groups=groups))

    broker.groups.read_each(
        wanted,
        lambda shard, group_id, now_ms: shard.classic.describe(group_id, ctx.version),
        lambda group_id, error: _failed(ctx, group_id, error),
        done,
    )
    return PARKED


def _failed(
    ctx: RequestContext, group_id: GroupId, error: ApiException
) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=error.message if ctx.version >= _ERROR_MESSAGE_FROM else None,
    )


def on_error(
    ctx: RequestContext, request: DescribeGroupsRequest, error: ApiException
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_failed(ctx, group_id, error) for group_id in request.groups])


API = Api(ApiKey.DESCRIBE_GROUPS, handle, on_error, needs=BY_HANDLER)
