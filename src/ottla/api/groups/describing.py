"""The one form of the APIs that describe modern groups: group ids in the request, a `DescribedGroup` for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.groups.requests import authorized_operations
from ottla.broker.services import Broker
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireResponse

if TYPE_CHECKING:
    from ottla.wire.messages import (
        ConsumerGroupDescribeRequest,
        ShareGroupDescribeRequest,
        StreamsGroupDescribeRequest,
    )

    _Request = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest


class DescribedGroup(Protocol):
    """One group of a response: each of the three responses has its own class."""

    error_code: int
    authorized_operations: int


D = TypeVar("D", bound=DescribedGroup)
Resp = TypeVar("Resp", bound=WireResponse)


def describe_api(
    key: ApiKey,
    new_response: Callable[..., Resp],
    new_group: Callable[..., D],
    require: Callable[[Broker], None],
    describe: Callable[[GroupShard, GroupId], D],
) -> Api[Broker, _Request, Resp]:
    """`require` raises if the type of group is disabled; `describe` raises an error for one group."""

    def handle(broker: Broker, ctx: RequestContext, request: _Request) -> Resp | Outcome:
        require(broker)
        operations = authorized_operations(request.include_authorized_operations)

        def done(groups: list[D]) -> None:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = operations
            ctx.respond(new_response(groups=groups))

        broker.groups.read_each(
            request.group_ids,
            lambda shard, group_id, now_ms: describe(shard, group_id),
            lambda group_id, error: refused(
                group_id, error.code if group_id else ErrorCode.INVALID_GROUP_ID, error
            ),
            done,
        )
        return PARKED

    def refused(group_id: GroupId, code: ErrorCode, error: ApiException) -> D:
        return new_group(group_id=group_id, error_code=code, error_message=error.message)

    def on_error(ctx: RequestContext, request: _Request, error: ApiException) -> Resp:
        return new_response(groups=[refused(group_id, error.code, error) for group_id in request.group_ids])

    return Api(key, handle, on_error, needs=BY_HANDLER)
