"""ConsumerGroupDescribe (69): consumer groups with their members, what these have and what they should have.

1 adds whether a member uses the classic or the consumer protocol.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.api.groups.consumer_group_heartbeat import require_consumer_protocol
from ottla.api.groups.requests import authorized_operations
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ConsumerGroupDescribeResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    require_consumer_protocol(broker)
    operations = authorized_operations(request)

    def done(groups: list[Message]) -> None:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations
        ctx.respond(ConsumerGroupDescribeResponse(groups=groups))

    broker.groups.read_each(
        request.group_ids,
        lambda shard, group_id, _: shard.consumer.describe(group_id),
        _refused,
        done,
    )
    return PARKED


def _refused(group_id: str, error: KafkaError) -> Message:
    code = error.code if group_id else ErrorCode.INVALID_GROUP_ID
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group_id, error_code=code, error_message=error.message
    )


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
            for group_id in request.group_ids
        ]
    )


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, handle, on_error)
