"""ExpireDelegationToken (key 40), versions 1-2.

Lets a token end sooner, or at once (KIP-48).

2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.security.delegation_tokens import check_allowed, decide
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ExpireDelegationTokenRequest


def handle(
    node: Node, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Outcome:
    check_allowed(node, ctx)
    return decide(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, error: ApiException
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


API = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, handle, on_error, needs=BY_HANDLER)
