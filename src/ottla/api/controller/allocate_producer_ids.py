"""AllocateProducerIds (key 67), version 0.

Allocates a block of producer ids to a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AllocateProducerIdsRequest


def handle(
    node: Node, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: AllocateProducerIdsRequest, error: ApiException
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error.code)


API = Api(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    handle,
    on_error,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.broker_id,),
)
