"""BrokerHeartbeat (key 63), versions 0-2.

Renews a broker's session, and reports its metadata offset and whether it wants to be fenced or shut down.

1 adds failed log directories; 2 adds cordoned ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import failure
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import BrokerHeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages import BrokerHeartbeatRequest


def handle(
    node: Node, ctx: RequestContext, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse | Outcome:
    controller = node.controller
    broker_id, epoch, connection = request.broker_id, request.broker_epoch, ctx.connection_id
    ctx.on_disconnect(
        ("broker heartbeat", broker_id),
        lambda: controller.broker_disconnected(broker_id, epoch, connection),
    )
    controller.broker_heartbeat(request, ctx.respond, failure(ctx, request, on_error), connection=connection)
    return PARKED


def on_error(
    ctx: RequestContext, request: BrokerHeartbeatRequest, error: ApiException
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error.code)


API = Api(
    ApiKey.BROKER_HEARTBEAT,
    handle,
    on_error,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.broker_id,),
)
