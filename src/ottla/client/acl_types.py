"""Access control entries with kafka-python's names: principals, operations and resources."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.enums import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
from ottla.client.errors import IllegalArgumentError


@dataclass(frozen=True)
class ResourcePatternFilter:
    """The resources that a filter looks for; a name of None stands for all.

    >>> ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY).resource_name
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: ACLResourcePatternType

    def __post_init__(self) -> None:
        if not isinstance(self.resource_type, ResourceType):
            raise IllegalArgumentError("resource_type must be a ResourceType")
        if not isinstance(self.pattern_type, ACLResourcePatternType):
            raise IllegalArgumentError("pattern_type must be an ACLResourcePatternType")


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resources that an entry is about.

    >>> ResourcePattern(ResourceType.TOPIC, "orders").pattern_type.name
    'LITERAL'
    """

    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("resource_type cannot be ANY in an entry")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(f"pattern_type cannot be {self.pattern_type.name} in an entry")


@dataclass(frozen=True)
class ACLFilter:
    """The entries that a filter looks for; None stands for any principal or host.

    >>> everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    >>> ACLFilter("User:alice", None, ACLOperation.ANY, ACLPermissionType.ANY, everything).principal
    'User:alice'
    """

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        if not isinstance(self.operation, ACLOperation):
            raise IllegalArgumentError("operation must be an ACLOperation")
        if not isinstance(self.permission_type, ACLPermissionType):
            raise IllegalArgumentError("permission_type must be an ACLPermissionType")
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError("resource_pattern must be a ResourcePatternFilter")


@dataclass(frozen=True)
class ACL(ACLFilter):
    """One access control entry.

    >>> orders = ResourcePattern(ResourceType.TOPIC, "orders")
    >>> ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders).operation.name
    'READ'
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.operation is ACLOperation.ANY or self.permission_type is ACLPermissionType.ANY:
            raise IllegalArgumentError("neither operation nor permission_type can be ANY in an entry")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError("resource_pattern must be a ResourcePattern")
