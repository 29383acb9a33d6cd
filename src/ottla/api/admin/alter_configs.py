"""AlterConfigs (key 33), versions 0-2.

All of a resource's dynamic configs at once; what is not named is removed.

1 is for brokers that may throttle; 2 is flexible. Broker loggers cannot be changed with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.admin import config_admin
from ottla.api.base import Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterConfigsRequest


def handle(node: Node, ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse | Outcome:
    return config_admin.alter(
        node,
        ctx,
        request,
        AlterConfigsResponse,
        lambda *asked: node.controller.alter_configs(*asked, forwarded=ctx.forwarded),
        configs.replacing_changes,
        may_change_loggers=False,
    )


def on_error(ctx: RequestContext, request: AlterConfigsRequest, error: ApiException) -> AlterConfigsResponse:
    return config_admin.all_failed(request, AlterConfigsResponse, error)


API = Api(ApiKey.ALTER_CONFIGS, handle, on_error)
