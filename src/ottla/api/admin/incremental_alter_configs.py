"""IncrementalAlterConfigs 0-1: set, delete, append to or subtract from single keys of a resource. 1 is flexible."""

from __future__ import annotations

from ottla.api.admin import config_admin
from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import IncrementalAlterConfigsResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    return config_admin.alter(
        node,
        ctx,
        request,
        IncrementalAlterConfigsResponse,
        lambda *asked: node.controller.incremental_alter_configs(*asked, forwarded=ctx.forwarded),
        configs.incremental_changes,
        may_change_loggers=True,
    )


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return config_admin.all_failed(request, IncrementalAlterConfigsResponse, error)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle, on_error)
