"""The one form of the APIs that describe modern groups: group ids in the request, a `DescribedGroup` for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.api.authorization import refusal
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.groups.requests import group_operations, split_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireResponse
from ottla.wire.enums import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.wire.messages import (
        ConsumerGroupDescribeRequest,
        ShareGroupDescribeRequest,
        StreamsGroupDescribeRequest,
    )

    _Request = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest


class DescribedGroup(Protocol):
    """One group of a response: each of the three responses has its own class."""

    group_id: GroupId
    error_code: int
    authorized_operations: int


_HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."

D = TypeVar("D", bound=DescribedGroup)
Resp = TypeVar("Resp", bound=WireResponse)


def describe_api(
    key: ApiKey,
    new_response: Callable[..., Resp],
    new_group: Callable[..., D],
    require: Callable[[Broker], None],
    describe: Callable[[GroupShard, GroupId], D],
    topics_of: Callable[[D], Iterable[TopicName]],
) -> Api[Broker, _Request, Resp]:
    """`require` raises if the type of group is disabled; `describe` raises an error for one group.

    `topics_of` are the topics that a described group shows: a client that may not describe one does not see the group.
    """

    def handle(broker: Broker, ctx: RequestContext, request: _Request) -> Resp | Outcome:
        require(broker)
        wanted, denied = split_groups(broker, ctx, AclOperation.DESCRIBE, request.group_ids)
        error = refusal(ResourceType.GROUP)

        def done(groups: list[D]) -> None:
            for index, group in enumerate(groups):
                if group.error_code:
                    continue
                if denied_topics(broker, ctx, AclOperation.DESCRIBE, topics_of(group)):
                    hidden = ApiException(NOT_AUTHORIZED.code, _HIDDEN)
                    groups[index] = refused(group.group_id, hidden.code, hidden)
                else:
                    group.authorized_operations = group_operations(
                        broker, ctx, group.group_id, request.include_authorized_operations
                    )
            groups += [refused(group_id, error.code, error) for group_id in denied]
            ctx.respond(new_response(groups=groups))

        broker.groups.read_each(
            wanted,
            lambda shard, group_id, now_ms: describe(shard, group_id),
            lambda group_id, error: refused(
                group_id, error.code if group_id else ErrorCode.INVALID_GROUP_ID, error
            ),
            done,
        )
        return PARKED

    def refused(group_id: GroupId, code: ErrorCode, error: ApiException) -> D:
        return new_group(group_id=group_id, error_code=code, error_message=error.message or None)

    def on_error(ctx: RequestContext, request: _Request, error: ApiException) -> Resp:
        return new_response(groups=[refused(group_id, error.code, error) for group_id in request.group_ids])

    return Api(key, handle, on_error, needs=BY_HANDLER)
