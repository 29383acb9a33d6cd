"""AllocateProducerIds (key 67), version 0.

A broker gets a block of producer ids that nobody else gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AllocateProducerIdsRequest


def handle(
    node: Node, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse | Outcome:
    return park(ctx, request, node.controller.allocate_producer_ids, on_error)


def on_error(
    ctx: RequestContext, request: AllocateProducerIdsRequest, error: ApiException
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error.code)


API = Api(ApiKey.ALLOCATE_PRODUCER_IDS, handle, on_error)
