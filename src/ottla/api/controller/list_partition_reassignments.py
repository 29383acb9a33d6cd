"""ListPartitionReassignments (key 46), version 0.

Lists the reassignments in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ListPartitionReassignmentsRequest


def handle(
    node: Node, ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest, error: ApiException
) -> ListPartitionReassignmentsResponse:
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


API = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, handle, on_error, forward=True, needs=(Right(AclOperation.DESCRIBE),)
)
