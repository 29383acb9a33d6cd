"""ControllerRegistration (key 70), version 0.

Registers a controller with its listeners and supported feature levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import failure
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import ControllerRegistrationResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ControllerRegistrationRequest


def handle(
    node: Node, ctx: RequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse | Outcome:
    node.controller.register_controller(request, ctx.respond, failure(ctx, request, on_error))
    return PARKED


def on_error(
    ctx: RequestContext, request: ControllerRegistrationRequest, error: ApiException
) -> ControllerRegistrationResponse:
    return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)


API = Api(
    ApiKey.CONTROLLER_REGISTRATION,
    handle,
    on_error,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.controller_id,),
)
