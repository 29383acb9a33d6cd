"""AssignReplicasToDirs (key 73), version 0.

A broker reports the log directories of its replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AssignReplicasToDirsRequest


def handle(
    node: Node, ctx: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: AssignReplicasToDirsRequest, error: ApiException
) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=error.code)


API = Api(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    handle,
    on_error,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.broker_id,),
)
