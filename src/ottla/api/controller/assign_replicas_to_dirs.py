"""AssignReplicasToDirs 0: a broker tells in which of its log directories replicas lie."""

from __future__ import annotations

from typing import Any

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.asking import controller_of, park
from ottla.errors import KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AssignReplicasToDirsResponse


def handle(node: Any, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, controller_of(node).assign_replicas_to_dirs, on_error)


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return AssignReplicasToDirsResponse(error_code=error.code)


API = Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, handle, on_error)
