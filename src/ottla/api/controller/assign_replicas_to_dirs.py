"""AssignReplicasToDirs 0: a broker tells in which of its log directories replicas lie."""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AssignReplicasToDirsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, node.controller.assign_replicas_to_dirs, on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return AssignReplicasToDirsResponse(error_code=error.code)


API = Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, handle, on_error)
