"""DescribeAcls (key 29), versions 1-3.

The ACLs that a filter matches, by resource.

1  patterns: literal and prefixed names (KIP-290)
2  flexible
3  the resource type USER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.acl_filter import AclFilter
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DescribeAclsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeAclsRequest


def handle(node: Node, ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if node.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.unknown:
        raise ApiException(ErrorCode.INVALID_REQUEST, "The filter has an unknown value.")
    resources: dict[tuple[int, str, int], list[DescribeAclsResponse.AclDescription]] = {}
    for acl in sorted(node.image.acls.values()):
        if wanted.matches(acl):
            found = resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), [])
            found.append(
                DescribeAclsResponse.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls
            )
            for (kind, name, pattern), acls in resources.items()
        ]
    )


API = Api(ApiKey.DESCRIBE_ACLS, handle, needs=(Right(AclOperation.DESCRIBE),))
