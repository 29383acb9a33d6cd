"""AllocateProducerIds 0: a broker gets a block of producer ids that nobody else gets."""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AllocateProducerIdsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, node.controller.allocate_producer_ids, on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return AllocateProducerIdsResponse(error_code=error.code)


API = Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, handle, on_error)
