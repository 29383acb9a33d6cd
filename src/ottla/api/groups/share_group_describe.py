"""ShareGroupDescribe (77): share groups with their members and what these fetch from. 1 is the first that stays."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.api.groups.requests import authorized_operations
from ottla.api.share.requests import require_share_groups
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ShareGroupDescribeResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    require_share_groups(broker)
    operations = authorized_operations(request)

    def done(groups: list[Message]) -> None:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations
        ctx.respond(ShareGroupDescribeResponse(groups=groups))

    broker.groups.read_each(
        request.group_ids, lambda shard, group_id, _: shard.share.describe(group_id), _refused, done
    )
    return PARKED


def _refused(group_id: str, error: KafkaError) -> Message:
    code = error.code if group_id else ErrorCode.INVALID_GROUP_ID
    return ShareGroupDescribeResponse.DescribedGroup(
        group_id=group_id, error_code=code, error_message=error.message
    )


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return ShareGroupDescribeResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


API = Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, handle, on_error)
