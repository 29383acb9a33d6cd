"""UnregisterBroker (key 64), version 0.

Forget a broker that will not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.wire.messages import UnregisterBrokerRequest


def handle(
    node: Node, ctx: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | Outcome:
    node.controller.unregister_broker(
        request, ctx.respond, lambda error: ctx.respond(on_error(ctx, request, error))
    )
    return PARKED


def on_error(
    ctx: RequestContext, request: UnregisterBrokerRequest, error: ApiException
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.UNREGISTER_BROKER, handle, on_error, forward=True)
