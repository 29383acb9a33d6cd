"""The one form of the APIs that describe groups of a newer type: ids in, a `DescribedGroup` for each out."""

from __future__ import annotations

from collections.abc import Callable

from ottla.api.base import BY_HANDLER, PARKED, AnyApi, Api, Message, Outcome, RequestContext
from ottla.api.groups.requests import authorized_operations
from ottla.broker.services import Broker
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey


def describe_api(
    key: ApiKey,
    response: Message,
    require: Callable[[Broker], None],
    describe: Callable[[GroupShard, str], Message],
) -> AnyApi:
    """`require` raises where the type of group is switched off; `describe` raises what is wrong with one group."""

    def handle(broker: Broker, ctx: RequestContext, request: Message) -> Message | Outcome:
        require(broker)
        operations = authorized_operations(request)

        def done(groups: list[Message]) -> None:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = operations
            ctx.respond(response(groups=groups))

        broker.groups.read_each(
            request.group_ids,
            lambda shard, group_id, now_ms: describe(shard, group_id),
            lambda group_id, error: refused(
                group_id, error.code if group_id else ErrorCode.INVALID_GROUP_ID, error
            ),
            done,
        )
        return PARKED

    def refused(group_id: str, code: ErrorCode, error: ApiException) -> Message:
        return response.DescribedGroup(group_id=group_id, error_code=code, error_message=error.message)

    def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
        return response(groups=[refused(group_id, error.code, error) for group_id in request.group_ids])

    return Api(key, handle, on_error, needs=BY_HANDLER)
