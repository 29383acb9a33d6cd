"""ListPartitionReassignments 0: replicas that are on the move."""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ListPartitionReassignmentsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, node.controller.list_partition_reassignments, on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    answer = ListPartitionReassignmentsResponse
    return answer(
        error_code=error.code,
        error_message=error.message,
        topics=[
            answer.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    answer.OngoingPartitionReassignment(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, handle, on_error, forward=True)
