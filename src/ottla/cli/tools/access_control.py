"""Access control entries: Kafka's words for them, and the requests that list, add and remove them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.cli.tools.failures import raise_for
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

CLUSTER_NAME: Final = "kafka-cluster"
_ANY: Final = 1


class ResourceKind(IntEnum):
    """What can be protected."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternKind(IntEnum):
    """How a name is meant."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What can be done."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether it may be done."""

    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: Final = {
    ResourceKind.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE),
        *(Operation.ALTER, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceKind.GROUP: (
        *(Operation.READ, Operation.DESCRIBE, Operation.DELETE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceKind.CLUSTER: (
        *(Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
        *(Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE),
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceKind.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceKind.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that have a meaning for a resource; ALL has one for each."""


class Pattern(NamedTuple):
    """A resource, or several of them."""

    kind: ResourceKind
    name: str
    pattern: PatternKind

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.kind.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    """Who may, or may not, do what, and from where."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

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


def _ask(cluster: Any, request: Any) -> Any:
    if not cluster.supports(request.API_KEY):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return cluster.ask(request)


def describe_acls(cluster: Any, wanted: Pattern | None = None) -> Acls:
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
            ResourceKind(resource.resource_type), resource.resource_name, PatternKind(resource.pattern_type)
        )
        found.setdefault(pattern, []).extend(
            Entry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type))
            for each in resource.acls
        )
    return found


def create_acls(cluster: Any, pattern: Pattern, entries: Iterable[Entry]) -> None:
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


def delete_acls(cluster: Any, pattern: Pattern, entries: Iterable[Entry]) -> None:
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
