"""UpdateFeatures (key 57), versions 0-2.

Finalized feature levels, all of the request or nothing.

0 has a flag that allows downgrades; 1 has upgrade types and validate-only; 2 drops the results per feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import failure
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.wire.messages import UpdateFeaturesRequest


def handle(
    node: Node, ctx: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | Outcome:
    failed = failure(ctx, request, on_error)
    node.controller.update_features(request, ctx.respond, failed, version=ctx.version)
    return PARKED


def on_error(
    ctx: RequestContext, request: UpdateFeaturesRequest, error: ApiException
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.UPDATE_FEATURES, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),))
