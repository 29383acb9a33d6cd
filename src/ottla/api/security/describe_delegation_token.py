"""DescribeDelegationToken (key 41), versions 1-3.

The tokens that a client may know of, with their secrets (KIP-48).

2  flexible
3  the requester of each token (KIP-373)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import allowed
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.security.delegation_tokens import check_allowed
from ottla.broker.services import Node
from ottla.controller.tokens import NAMES_REQUESTER_FROM
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DescribeDelegationTokenResponse

if TYPE_CHECKING:
    from ottla.credentials.delegation_tokens import TokenKey
    from ottla.metadata.image import DelegationToken
    from ottla.wire.messages import DescribeDelegationTokenRequest

_Response = DescribeDelegationTokenResponse


def handle(node: Node, ctx: RequestContext, request: DescribeDelegationTokenRequest) -> _Response:
    check_allowed(node, ctx)
    key = node.token_key
    if key is None:
        raise ApiException(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled."
        )
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    return _Response(
        tokens=[
            _described(token, key, ctx.version)
            for token in node.image.tokens.values()
            if (owners is None or owners & _parties(token)) and _may_describe(node, ctx, token)
        ]
    )


def _parties(token: DelegationToken) -> set[str]:
    return {token.owner, token.requester, *token.renewers}


def _may_describe(node: Node, ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        ctx.principal in _parties(token)
        or allowed(node, ctx, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or allowed(node, ctx, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: DelegationToken, key: TokenKey, version: int) -> _Response.DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    described = _Response.DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=key.hmac(token.token_id),
        renewers=[
            _Response.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
    if version >= NAMES_REQUESTER_FROM:
        requester_kind, _, requester_name = token.requester.partition(":")
        described.token_requester_principal_type = requester_kind
        described.token_requester_principal_name = requester_name
    return described


API = Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, handle, needs=BY_HANDLER)
