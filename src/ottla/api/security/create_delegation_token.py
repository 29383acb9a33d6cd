"""CreateDelegationToken (key 38), versions 1-3.

Makes a token with which a client can log in as its owner (KIP-48).

2  flexible
3  a token for another owner than the requester (KIP-373)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed
from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.security.delegation_tokens import check_allowed, decide
from ottla.broker.services import Node
from ottla.controller.tokens import new_response, owner_of
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.wire.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_NO_TIME: Final = -1


def handle(
    node: Node, ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Outcome:
    check_allowed(node, ctx)
    owner = owner_of(request, ctx.principal)
    if owner != ctx.principal and not allowed(
        node, ctx, AclOperation.CREATE_TOKENS, ResourceType.USER, owner
    ):
        raise ApiException(
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."
        )
    if any(each.principal_type != "User" for each in request.renewers):
        raise ApiException(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported.")
    return decide(node, ctx, request, on_error)


def on_error(
    ctx: RequestContext, request: CreateDelegationTokenRequest, error: ApiException
) -> CreateDelegationTokenResponse:
    response = new_response(request, ctx.principal, ctx.version)
    response.error_code = error.code
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = _NO_TIME
    return response


API = Api(ApiKey.CREATE_DELEGATION_TOKEN, handle, on_error, needs=BY_HANDLER)
