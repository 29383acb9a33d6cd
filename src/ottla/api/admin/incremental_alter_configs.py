"""IncrementalAlterConfigs (key 44), versions 0-1.

Set, delete, append to or subtract from single keys of a resource. 1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.admin import config_admin
from ottla.api.base import Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import IncrementalAlterConfigsRequest


def handle(
    node: Node, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Outcome:
    return config_admin.alter(
        node,
        ctx,
        request,
        IncrementalAlterConfigsResponse,
        lambda *asked: node.controller.incremental_alter_configs(*asked, forwarded=ctx.forwarded),
        configs.incremental_changes,
        may_change_loggers=True,
    )


def on_error(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, error: ApiException
) -> IncrementalAlterConfigsResponse:
    return config_admin.all_failed(request, IncrementalAlterConfigsResponse, error)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, on_error)
