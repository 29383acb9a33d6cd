"""CreateAcls (key 30), versions 1-3.

Adds ACLs, each by itself.

1  patterns: literal and prefixed names (KIP-290)
2  flexible
3  the resource type USER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import CreateAclsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreateAclsRequest


def handle(node: Node, ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse | Outcome:
    if node.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return forward_to_controller(node, ctx, request, on_error)


def on_error(ctx: RequestContext, request: CreateAclsRequest, error: ApiException) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message)
            for _ in request.creations
        ]
    )


API = Api(ApiKey.CREATE_ACLS, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),))
