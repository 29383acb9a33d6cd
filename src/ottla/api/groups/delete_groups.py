"""DeleteGroups (key 42), versions 0-2.

Deletes groups without members, of any type, with their offsets.

1 adds the throttle time; 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.api.authorization import allowed, refusal
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.promise import Gather
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DeleteGroupsRequest

_Result = DeleteGroupsResponse.DeletableGroupResult


def handle(
    broker: Broker, ctx: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Outcome:
    # A group that is named twice is deleted once.
    group_ids = list(dict.fromkeys(request.groups_names))
    gather: Gather[_Result] = Gather(
        len(group_ids), lambda results: ctx.respond(DeleteGroupsResponse(results=results))
    )
    for index, group_id in enumerate(group_ids):
        if not allowed(broker, ctx, AclOperation.DELETE, ResourceType.GROUP, group_id):
            gather.put(index, _failed(group_id, refusal(ResourceType.GROUP)))
            continue
        _delete(broker, group_id, partial(gather.put, index))
    return PARKED


def _delete(broker: Broker, group_id: GroupId, put: Callable[[_Result], None]) -> None:
    """Delete the share state of the group, if it is a share group; then the group."""

    def delete() -> None:
        broker.groups.write(
            group_id,
            lambda shard, now_ms: shard.admin.delete(group_id),
            put,
            lambda error: put(_failed(group_id, error)),
        )

    def not_prepared(error: ApiException) -> None:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            delete()
        else:
            put(_failed(group_id, error))

    broker.share.groups.delete_state(group_id, delete, not_prepared)


def _failed(group_id: GroupId, error: ApiException) -> _Result:
    return _Result(group_id=group_id, error_code=error.code)


def on_error(ctx: RequestContext, request: DeleteGroupsRequest, error: ApiException) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_failed(group_id, error) for group_id in request.groups_names])


API = Api(ApiKey.DELETE_GROUPS, handle, on_error, needs=BY_HANDLER)
