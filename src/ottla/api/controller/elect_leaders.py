"""ElectLeaders (key 43), versions 0-2.

Elects leaders: the preferred replicas, or by unclean elections.

0 has preferred elections only; 1 adds the kind of election and an error for the whole request; 2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import ElectLeadersResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ElectLeadersRequest


def handle(node: Node, ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | Outcome:
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse()
    return forward_to_controller(node, ctx, request, on_error)


def on_error(ctx: RequestContext, request: ElectLeadersRequest, error: ApiException) -> ElectLeadersResponse:
    answer = ElectLeadersResponse
    return answer(
        error_code=error.code if ctx.version >= 1 else 0,
        replica_election_results=[
            answer.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    answer.PartitionResult(
                        partition_id=index, error_code=error.code, error_message=error.message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


API = Api(ApiKey.ELECT_LEADERS, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),))
