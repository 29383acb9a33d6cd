"""DeleteAcls (key 31), versions 1-3.

Removes the ACLs that filters match, and lists them.

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
from ottla.wire.messages import DeleteAclsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DeleteAclsRequest


def handle(node: Node, ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse | Outcome:
    if node.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return forward_to_controller(node, ctx, request, on_error)


def on_error(ctx: RequestContext, request: DeleteAclsRequest, error: ApiException) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
            for _ in request.filters
        ]
    )


API = Api(ApiKey.DELETE_ACLS, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER),))
