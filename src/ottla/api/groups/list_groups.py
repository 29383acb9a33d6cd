"""ListGroups (16): the groups that this broker coordinates.

1 adds the throttle time; 3 is flexible; 4 filters by state and tells it; 5 filters by type and tells it.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ListGroupsResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    states, types = request.states_filter, request.types_filter

    def done(lists: list[list[Message]]) -> None:
        ctx.respond(ListGroupsResponse(groups=[group for groups in lists for group in groups]))

    def failed(error: ApiException) -> None:
        ctx.respond(ListGroupsResponse(error_code=error.code))

    broker.groups.runtime.read_all(lambda shard, now_ms: shard.admin.list(states, types), done, failed)
    return PARKED


API = Api(ApiKey.LIST_GROUPS, 0, 5, handle)
