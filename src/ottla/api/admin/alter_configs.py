"""AlterConfigs (key 33), versions 0-2.

Replaces all dynamic configs of a resource; configs that the request does not name are removed.

1 is for brokers that may throttle; 2 is flexible. Broker loggers cannot be changed with it.
"""

from __future__ import annotations

from ottla.api.admin import config_admin
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import failure
from ottla.api.forwarding.request_forwarding import forward_part
from ottla.broker.services import Node
from ottla.controller import configs
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterConfigsRequest, AlterConfigsResponse


def handle(node: Node, ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse | Outcome:
    failed = failure(ctx, request, on_error)

    def store(own: config_admin.Own) -> None:
        rest = AlterConfigsRequest(
            resources=config_admin.without_own(request.resources, own), validate_only=request.validate_only
        )

        def done(response: AlterConfigsResponse) -> None:
            cls = AlterConfigsResponse.AlterConfigsResourceResponse
            results = config_admin.joined(cls, request.resources, own, response.responses)
            ctx.respond(AlterConfigsResponse(responses=results))

        try:
            if ctx.on_controller_listener:
                node.controller.alter_configs(rest, done, failed, forwarded=ctx.forwarded)
            else:
                forward_part(node, ctx, rest, done, failed)
        except ApiException as error:
            failed(error)

    config_admin.handle_own(node, ctx, request.resources, configs.replacing_changes, store)
    return PARKED


def on_error(ctx: RequestContext, request: AlterConfigsRequest, error: ApiException) -> AlterConfigsResponse:
    cls = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=config_admin.all_failed(cls, request.resources, error))


API = Api(ApiKey.ALTER_CONFIGS, handle, on_error, needs=BY_HANDLER)
