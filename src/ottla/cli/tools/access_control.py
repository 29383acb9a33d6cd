"""Access control entries: Kafka's words for them, and the requests that list, add and remove them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.cli.tools.failures import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

CLUSTER_NAME: Final = "kafka-cluster"
_ANY: Final = 1


OPERATIONS_OF: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that have a meaning for a resource; ALL has one for each."""


class Pattern(NamedTuple):
    """A resource, or several of them."""

    kind: ResourceType
    name: str
    pattern: PatternType

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.kind.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    """Who may, or may not, do what, and from where."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name},"
            f" permissionType={self.permission.name})"
        )

    def document(self) -> dict[str, str]:
        return {
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation.name,
            "permission": self.permission.name,
        }


Acls = dict[Pattern, list[Entry]]


def _ask(cluster: Cluster, request: Any) -> Any:
    if not cluster.supports(request.API_KEY):
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return cluster.ask(request)


def describe_acls(cluster: Cluster, wanted: Pattern | None = None) -> Acls:
    """All entries about some resources, or about all."""
    request = DescribeAclsRequest(
        resource_type_filter=int(wanted.kind) if wanted else _ANY,
        resource_name_filter=wanted.name if wanted else None,
        pattern_type_filter=int(wanted.pattern) if wanted else _ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = _ask(cluster, request)
    raise_for(answer.error_code, answer.error_message)
    found: Acls = {}
    for resource in answer.resources:
        pattern = Pattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        )
        found.setdefault(pattern, []).extend(
            Entry(
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
            )
            for each in resource.acls
        )
    return found


def create_acls(cluster: Cluster, pattern: Pattern, entries: Iterable[Entry]) -> None:
    kind = CreateAclsRequest
    creations = [
        kind.AclCreation(
            resource_type=int(pattern.kind),
            resource_name=pattern.name,
            resource_pattern_type=int(pattern.pattern),
            principal=entry.principal,
            host=entry.host,
            operation=int(entry.operation),
            permission_type=int(entry.permission),
        )
        for entry in entries
    ]
    for result in _ask(cluster, kind(creations=creations)).results:
        raise_for(result.error_code, result.error_message)


def delete_acls(cluster: Cluster, pattern: Pattern, entries: Iterable[Entry]) -> None:
    """Remove these entries; all entries where none is given."""
    kind = DeleteAclsRequest
    chosen: list[Entry | None] = [*entries] or [None]
    filters = [
        kind.DeleteAclsFilter(
            resource_type_filter=int(pattern.kind),
            resource_name_filter=pattern.name,
            pattern_type_filter=int(pattern.pattern),
            principal_filter=entry.principal if entry else None,
            host_filter=entry.host if entry else None,
            operation=int(entry.operation) if entry else _ANY,
            permission_type=int(entry.permission) if entry else _ANY,
        )
        for entry in chosen
    ]
    for result in _ask(cluster, kind(filters=filters)).filter_results:
        raise_for(result.error_code, result.error_message)
        for each in result.matching_acls:
            raise_for(each.error_code, each.error_message)
