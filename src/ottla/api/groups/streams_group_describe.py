"""StreamsGroupDescribe (89): streams groups with their topology, members and tasks. There is version 0 only."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.api.groups.requests import authorized_operations
from ottla.api.groups.streams_group_heartbeat import require_streams_protocol
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import StreamsGroupDescribeResponse


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    require_streams_protocol(broker)
    operations = authorized_operations(request)

    def done(groups: list[Message]) -> None:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations
        ctx.respond(StreamsGroupDescribeResponse(groups=groups))

    broker.groups.read_each(
        request.group_ids, lambda shard, group_id, _: shard.streams.describe(group_id), _refused, done
    )
    return PARKED


def _refused(group_id: str, error: KafkaError) -> Message:
    code = error.code if group_id else ErrorCode.INVALID_GROUP_ID
    return StreamsGroupDescribeResponse.DescribedGroup(
        group_id=group_id, error_code=code, error_message=error.message
    )


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return StreamsGroupDescribeResponse(
        groups=[
            StreamsGroupDescribeResponse.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
            for group_id in request.group_ids
        ]
    )


API = Api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, handle, on_error)
