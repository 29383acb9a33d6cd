"""ControllerRegistration 0: a controller tells where it listens and which feature levels it knows."""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ControllerRegistrationResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, node.controller.register_controller, on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, handle, on_error)
