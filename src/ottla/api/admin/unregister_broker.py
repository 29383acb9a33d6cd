"""UnregisterBroker (key 64), version 0.

Removes a broker that will not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.wire.messages import UnregisterBrokerRequest


def handle(
    node: Node, ctx: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: UnregisterBrokerRequest, error: ApiException
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.UNREGISTER_BROKER, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),))
