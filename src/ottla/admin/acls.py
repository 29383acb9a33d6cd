"""Access control entries: list, add and remove them. The cluster needs an authorizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import CreateAclsResponse, DeleteAclsResponse


_AO = AclOperation
OPERATIONS_OF: Final = {
    ResourceType.TOPIC: (
        *(_AO.READ, _AO.WRITE, _AO.CREATE, _AO.DESCRIBE, _AO.DELETE, _AO.ALTER),
        *(_AO.DESCRIBE_CONFIGS, _AO.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (*(_AO.READ, _AO.DESCRIBE, _AO.DELETE, _AO.DESCRIBE_CONFIGS, _AO.ALTER_CONFIGS),),
    ResourceType.CLUSTER: (
        *(_AO.CREATE, _AO.CLUSTER_ACTION, _AO.DESCRIBE_CONFIGS, _AO.ALTER_CONFIGS),
        *(_AO.IDEMPOTENT_WRITE, _AO.ALTER, _AO.DESCRIBE),
    ),
    ResourceType.TRANSACTIONAL_ID: (_AO.DESCRIBE, _AO.WRITE, _AO.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_AO.DESCRIBE,),
    ResourceType.USER: (_AO.CREATE_TOKENS, _AO.DESCRIBE_TOKENS),
}
"""The operations that a type of resource knows; each type also knows ALL."""


class Pattern(NamedTuple):
    """The resources that an entry is about. A name of None, in filters only, stands for all names."""

    kind: ResourceType
    name: str | None
    pattern: PatternType

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.kind.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    """Which principal may or may not do what, and from where. None, in filters only, stands for any."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name},"
            f" permissionType={self.permission.name})"
        )


ANY_PATTERN: Final = Pattern(ResourceType.ANY, None, PatternType.ANY)
ANY_ENTRY: Final = Entry(None, None, AclOperation.ANY, AclPermissionType.ANY)

Acls = dict[Pattern, list[Entry]]


def _check_authorizer(cluster: Cluster, api_key: int) -> None:
    if not cluster.supports(api_key):
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def describe_acls(cluster: Cluster, pattern: Pattern = ANY_PATTERN, entry: Entry = ANY_ENTRY) -> Acls:
    """The entries that fit, by resource."""
    _check_authorizer(cluster, DescribeAclsRequest.API_KEY)
    request = DescribeAclsRequest(
        resource_type_filter=pattern.kind,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    response = cluster.ask(request)
    raise_for(response.error_code, response.error_message)
    found: Acls = {}
    for resource in response.resources:
        key = Pattern(
            ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
        )
        found.setdefault(key, []).extend(
            Entry(
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
            )
            for each in resource.acls
        )
    return found


def create_acls(cluster: Cluster, entries: Iterable[tuple[Pattern, Entry]]) -> CreateAclsResponse:
    """Add entries; the response has an error code for each."""
    _check_authorizer(cluster, CreateAclsRequest.API_KEY)
    kind = CreateAclsRequest
    creations = [
        kind.AclCreation(
            resource_type=pattern.kind,
            resource_name=pattern.name or "",
            resource_pattern_type=pattern.pattern,
            principal=entry.principal or "",
            host=entry.host or "",
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in entries
    ]
    return cluster.ask(kind(creations=creations))


def delete_acls(cluster: Cluster, filters: Iterable[tuple[Pattern, Entry]]) -> DeleteAclsResponse:
    """Remove the entries that fit filters; the response tells for each filter what was removed."""
    _check_authorizer(cluster, DeleteAclsRequest.API_KEY)
    kind = DeleteAclsRequest
    wanted = [
        kind.DeleteAclsFilter(
            resource_type_filter=pattern.kind,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in filters
    ]
    return cluster.ask(kind(filters=wanted))
