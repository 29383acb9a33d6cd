"""IncrementalAlterConfigs (key 44), versions 0-1.

Sets, deletes, appends to or subtracts from single configs of a resource. 1 is flexible.
"""

from __future__ import annotations

from ottla.api.admin import config_admin, loggers
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import failure
from ottla.api.forwarding.request_forwarding import forward_part
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse


def handle(
    node: Node, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Outcome:
    def alter_loggers(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        loggers.alter_levels(resource.configs, validate_only=request.validate_only)

    failed = failure(ctx, request, on_error)

    def store(own: config_admin.Own) -> None:
        rest = IncrementalAlterConfigsRequest(
            resources=config_admin.without_own(request.resources, own), validate_only=request.validate_only
        )

        def done(response: IncrementalAlterConfigsResponse) -> None:
            cls = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
            results = config_admin.joined(cls, request.resources, own, response.responses)
            ctx.respond(IncrementalAlterConfigsResponse(responses=results))

        try:
            if ctx.on_controller_listener:
                node.controller.incremental_alter_configs(rest, done, failed, forwarded=ctx.forwarded)
            else:
                forward_part(node, ctx, rest, done, failed)
        except ApiException as error:
            failed(error)

    config_admin.handle_own(node, ctx, request.resources, configs.incremental_changes, store, alter_loggers)
    return PARKED


def on_error(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, error: ApiException
) -> IncrementalAlterConfigsResponse:
    cls = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=config_admin.all_failed(cls, request.resources, error))


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, on_error, needs=BY_HANDLER)
