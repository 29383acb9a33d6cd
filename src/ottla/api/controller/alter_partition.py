"""AlterPartition 2-3: a partition's leader asks for another in-sync set.

2 names topics by id; 3 tells the epoch of each broker in the set, so that one that was restarted since is not let in.
"""

from __future__ import annotations

from functools import partial

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterPartitionResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, partial(node.controller.alter_partition, version=ctx.version), on_error)


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return AlterPartitionResponse(error_code=error.code)


API = Api(ApiKey.ALTER_PARTITION, 2, 3, handle, on_error)
