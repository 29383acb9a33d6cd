"""UpdateFeatures 0-2: finalized feature levels, all of the request or nothing.

0 has a flag that allows downgrades; 1 has upgrade types and validate-only; 2 drops the results per feature.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import UpdateFeaturesResponse


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.controller.update_features(
        request,
        ctx.respond,
        lambda error: ctx.respond(on_error(ctx, request, error)),
        version=ctx.version,
    )
    return PARKED


def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.UPDATE_FEATURES, 0, 2, handle, on_error, forward=True)
