"""Decides what a session may do, as Kafka's StandardAuthorizer decides, and writes the audit log.

Super users may do everything. Until the metadata has been read up to where it stood at the start, nobody else may do
anything. A denied operation is never allowed because something went wrong here: errors deny.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import AclEntry
from ottla.security.acl_index import AclIndex
from ottla.security.audit import AuditFile
from ottla.security.grants import EVERY_OPERATION, Action, Grants, audit_log, printable
from ottla.wire import schema
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

TRACE: Final = 5
"""The level of filters and of authorized_operations, as in log4j."""


class Authorizer:
    """One node's decisions. `update` follows the metadata."""

    __slots__ = ("_allow_everyone", "_index", "_loaded", "_super_users", "audit", "generation")

    def __init__(self, super_users: str, *, allow_everyone_if_no_acl_found: bool) -> None:
        """`super_users` is the text of `super.users`: principals separated by semicolons."""
        self._super_users = frozenset(each.strip() for each in super_users.split(";") if each.strip())
        for each in self._super_users:
            if ":" not in each:
                raise ValueError(f"super.users: {each} is no principal: expected principalType:principalName")
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._index = AclIndex()
        self.generation = self._index.generation
        """Changes with the ACLs: what a session was granted under another one does not count any more."""
        self._loaded = False
        self.audit: AuditFile | None = None
        """Gets what is denied, besides the log."""

    def update(self, acls: Mapping[bytes, AclEntry]) -> None:
        """Take over the ACLs of the newest image."""
        self._index.update(acls)
        self.generation = self._index.generation

    def complete_loading(self) -> None:
        """The metadata has been read up to where it stood when this node started."""
        self._loaded = True

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def operations(self, grants: Grants, kind: int, name: str) -> int:
        """All operations that a session may do with a resource, as bits `1 << code`."""
        if grants.generation == self.generation:
            mask = grants.masks[kind].get(name)
            if mask is not None:
                return mask
        return self._decide(grants, kind, name)

    def _decide(self, grants: Grants, kind: int, name: str) -> int:
        """Look a resource up in the index. The session keeps the answer until the ACLs change."""
        if grants.internal or grants.principal in self._super_users:
            mask = EVERY_OPERATION
        elif not self._loaded:
            raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "The authorizer is still loading the ACLs.")
        else:
            denied, allowed, found = self._index.masks(kind, name, grants.principal, grants.host)
            mask = EVERY_OPERATION if self._allow_everyone and not found else allowed & ~denied
        if grants.generation != self.generation:
            grants.forget(self.generation)
        grants.keep(kind, name, mask)
        return mask

    def authorize(self, grants: Grants, action: Action, api_key: int) -> bool:
        """Whether a session may do this. The decision goes to the audit log."""
        allowed = bool(self.operations(grants, action.kind, action.name) & 1 << action.operation)
        if allowed:
            if audit_log.isEnabledFor(logging.DEBUG):
                level = logging.DEBUG if action.log_denied else TRACE
                audit_log.log(level, "%s", self._sentence(grants, action, api_key, allowed=True))
        else:
            level = logging.INFO if action.log_denied else TRACE
            if audit_log.isEnabledFor(level):
                audit_log.log(level, "%s", self._sentence(grants, action, api_key, allowed=False))
            if self.audit is not None and action.log_denied:
                self.audit.event(
                    "denied",
                    {
                        "principal": grants.principal,
                        "host": grants.host,
                        "operation": action.operation.name,
                        "resource_type": action.kind.name,
                        "resource": action.name,
                        "request": _request_name(api_key),
                        "rule": self._rule(grants, action),
                    },
                )
        return allowed

    def authorize_by_type(self, grants: Grants, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether the session may do this with at least one resource of a type (InitProducerId asks)."""
        if self.operations(grants, kind, "hardcode") & 1 << operation:
            return True
        return self._index.any_allowed(kind, grants.principal, grants.host, operation)

    def _sentence(self, grants: Grants, action: Action, api_key: int, *, allowed: bool) -> str:
        return (
            f"Principal = {printable(grants.principal)} is {'Allowed' if allowed else 'Denied'} "
            f"operation = {action.operation.name} from host = {grants.host} on resource = "
            f"{_KINDS[action.kind]}:LITERAL:{printable(action.name)} for request = {_request_name(api_key)} "
            f"with resourceRefCount = {action.references} based on rule {self._rule(grants, action)}"
        )

    def _rule(self, grants: Grants, action: Action) -> str:
        if grants.principal in self._super_users:
            return "SuperUser"
        acl = self._index.deciding(action.kind, action.name, grants.principal, grants.host, action.operation)
        if acl is None:
            return "DefaultAllow" if self._allow_everyone else "DefaultDeny"
        return (
            f"MatchingAcl(acl=StandardAcl(resourceType={ResourceType(acl.resource_type).name}, "
            f"resourceName={printable(acl.resource_name)}, patternType={PatternType(acl.pattern_type).name}, "
            f"principal={printable(acl.principal)}, host={printable(acl.host)}, "
            f"operation={AclOperation(acl.operation).name}, "
            f"permissionType={AclPermissionType(acl.permission_type).name}))"
        )


_KINDS: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


def _request_name(api_key: int) -> str:
    return schema.api_message_names()["request", api_key].removesuffix("Request")
