"""AlterPartitionReassignments 0-1: replicas move to other brokers, or a move is cancelled.

1 may insist on the replication factor as it is.
"""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterPartitionReassignmentsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, node.controller.alter_partition_reassignments, on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    answer = AlterPartitionReassignmentsResponse
    return answer(
        error_code=error.code,
        error_message=error.message,
        responses=[
            answer.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    answer.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, handle, on_error, forward=True)
