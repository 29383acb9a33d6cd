"""Which ACLs a filter means: of DescribeAcls and DeleteAcls, with Kafka's rules for names and patterns."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.metadata.image import AclEntry
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

_WILDCARD: Final = "*"


class AclFilter(NamedTuple):
    """None and ANY stand for everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def unknown(self) -> bool:
        """Whether a number in it means nothing here: such a filter is refused."""
        return (
            self.resource_type not in _RESOURCES
            or self.pattern_type not in _PATTERNS
            or self.operation not in _OPERATIONS
            or self.permission_type not in _PERMISSIONS
        )

    def matches(self, acl: AclEntry) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: AclEntry) -> bool:
        wanted, name = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if wanted in (PatternType.ANY, acl.pattern_type):
            return name == acl.resource_name
        # MATCH: every pattern that is about a resource of this name.
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, _WILDCARD)


_RESOURCES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_PATTERNS: Final = frozenset(PatternType) - {PatternType.UNKNOWN}
_OPERATIONS: Final = frozenset(AclOperation) - {AclOperation.UNKNOWN}
_PERMISSIONS: Final = frozenset(AclPermissionType) - {AclPermissionType.UNKNOWN}
