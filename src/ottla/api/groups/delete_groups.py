"""DeleteGroups (42): delete groups without members, of any type, and their offsets.

1 adds the throttle time; 2 is flexible.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.errors import KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DeleteGroupsResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    # A group that is named twice is deleted once.
    group_ids = list(dict.fromkeys(request.groups_names))
    broker.groups.write_each(
        group_ids,
        lambda shard, group_id, now_ms: shard.admin.delete(group_id),
        _failed,
        lambda results: ctx.respond(DeleteGroupsResponse(results=results)),
    )
    return PARKED


def _failed(group_id: str, error: KafkaError) -> Message:
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error.code)


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return DeleteGroupsResponse(results=[_failed(group_id, error) for group_id in request.groups_names])


API = Api(ApiKey.DELETE_GROUPS, 0, 2, handle, on_error)
