"""AlterPartition (key 56), versions 2-3.

A partition's leader requests another in-sync set.

2 names topics by id; 3 adds the epoch of each broker in the set, so that a restarted broker is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AlterPartitionResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterPartitionRequest


def handle(
    node: Node, ctx: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse | Outcome:
    if not request.topics:
        # As in Kafka, a request for nothing is answered before its sender is looked at.
        return AlterPartitionResponse()
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: AlterPartitionRequest, error: ApiException
) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error.code)


API = Api(
    ApiKey.ALTER_PARTITION,
    handle,
    on_error,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.broker_id,),
)
