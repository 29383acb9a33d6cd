"""RenewDelegationToken (key 39), versions 1-2.

Lets a token live longer (KIP-48).

2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.security.delegation_tokens import check_allowed, decide
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from ottla.wire.messages import RenewDelegationTokenRequest


def handle(
    node: Node, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Outcome:
    check_allowed(node, ctx)
    return decide(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: RenewDelegationTokenRequest, error: ApiException
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


API = Api(ApiKey.RENEW_DELEGATION_TOKEN, handle, on_error, needs=BY_HANDLER)
