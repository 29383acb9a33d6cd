"""AlterPartition (key 56), versions 2-3.

A partition's leader asks for another in-sync set.

2 names topics by id; 3 tells the epoch of each broker in the set, so that one that was restarted since is not let in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterPartitionResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterPartitionRequest


def handle(
    node: Node, ctx: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse | Outcome:
    return park(ctx, request, partial(node.controller.alter_partition, version=ctx.version), on_error)


def on_error(
    ctx: RequestContext, request: AlterPartitionRequest, error: ApiException
) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error.code)


API = Api(ApiKey.ALTER_PARTITION, handle, on_error)
