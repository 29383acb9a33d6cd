"""BrokerRegistration (key 62), versions 0-4.

Registers a broker and returns its epoch.

1 was for the migration from ZooKeeper; 2 adds the log directories; 3 adds the previous epoch, which proves a clean
shutdown; 4 allows features whose lowest level is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import failure
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import BrokerRegistrationResponse

if TYPE_CHECKING:
    from ottla.wire.messages import BrokerRegistrationRequest


def handle(
    node: Node, ctx: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse | Outcome:
    node.controller.register_broker(request, ctx.respond, failure(ctx, request, on_error))
    return PARKED


def on_error(
    ctx: RequestContext, request: BrokerRegistrationRequest, error: ApiException
) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error.code)


API = Api(
    ApiKey.BROKER_REGISTRATION,
    handle,
    on_error,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.broker_id,),
)
