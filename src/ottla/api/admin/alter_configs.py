"""AlterConfigs 0-2: all of a resource's dynamic configs at once; what is not named is removed.

1 is for brokers that may throttle; 2 is flexible. Broker loggers cannot be changed with it.
"""

from __future__ import annotations

from ottla.api.admin import config_admin
from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterConfigsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return config_admin.alter(
        node,
        ctx,
        request,
        AlterConfigsResponse,
        lambda *asked: node.controller.alter_configs(*asked, forwarded=ctx.forwarded),
        configs.replacing_changes,
        may_change_loggers=False,
    )


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return config_admin.all_failed(request, AlterConfigsResponse, error)


API = Api(ApiKey.ALTER_CONFIGS, 0, 2, handle, on_error)
