"""ListGroups (key 16), versions 0-5.

Lists the groups that this broker coordinates.

1 adds the throttle time; 3 is flexible; 4 has the state and filters by it; 5 has the type and filters by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import cluster_allowed, split
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ListGroupsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ListGroupsRequest


def handle(broker: Broker, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse | Outcome:
    states, types = request.states_filter, request.types_filter

    def done(lists: list[list[ListGroupsResponse.ListedGroup]]) -> None:
        found = [group for groups in lists for group in groups]
        if not cluster_allowed(broker, ctx, AclOperation.DESCRIBE, log_denied=False):
            found, _ = split(
                broker,
                ctx,
                AclOperation.DESCRIBE,
                ResourceType.GROUP,
                found,
                lambda group: group.group_id,
                log_denied=False,
            )
        ctx.respond(ListGroupsResponse(groups=found))

    def failed(error: ApiException) -> None:
        ctx.respond(ListGroupsResponse(error_code=error.code))

    broker.groups.runtime.read_all(lambda shard, now_ms: shard.admin.list(states, types), done, failed)
    return PARKED


API = Api(ApiKey.LIST_GROUPS, handle, needs=BY_HANDLER)
