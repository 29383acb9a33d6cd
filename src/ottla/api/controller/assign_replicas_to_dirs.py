"""AssignReplicasToDirs (key 73), version 0.

A broker tells in which of its log directories replicas lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AssignReplicasToDirsRequest


def handle(
    node: Node, ctx: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse | Outcome:
    return park(ctx, request, node.controller.assign_replicas_to_dirs, on_error)


def on_error(
    ctx: RequestContext, request: AssignReplicasToDirsRequest, error: ApiException
) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(error_code=error.code)


API = Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, handle, on_error)
