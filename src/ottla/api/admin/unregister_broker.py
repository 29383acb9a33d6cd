"""UnregisterBroker 0: forget a broker that will not come back."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import UnregisterBrokerResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.controller.unregister_broker(
        request, ctx.respond, lambda error: ctx.respond(on_error(ctx, request, error))
    )
    return PARKED


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.UNREGISTER_BROKER, 0, 0, handle, on_error, forward=True)
