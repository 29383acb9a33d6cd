"""AlterPartitionReassignments (key 45), versions 0-1.

Replicas move to other brokers, or a move is cancelled.

1 may forbid a change of the replication factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AlterPartitionReassignmentsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterPartitionReassignmentsRequest


def handle(
    node: Node, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, error: ApiException
) -> AlterPartitionReassignmentsResponse:
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


API = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),)
)
