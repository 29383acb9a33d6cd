"""The admin client's methods for access control entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ottla.admin import acls as requests
from ottla.admin.acls import Entry, Pattern
from ottla.client.acl_types import ACL, ACLFilter, ResourcePattern
from ottla.client.admin_base import AdminBase
from ottla.client.errors import BrokerResponseError, IllegalArgumentError, for_code
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

ErrorType = type[BrokerResponseError]


class CreatedAcls(TypedDict):
    """The entries that exist now, and the errors of the others."""

    succeeded: list[ACL]
    failed: list[ErrorType]


class AclAdmin(AdminBase):
    """List, add and remove access control entries; the cluster needs an authorizer."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], ErrorType]:
        """The entries that fit, and NoError.

        The cluster needs an authorizer::

            everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
            acls, error = admin.describe_acls(
                ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, everything)
            )
        """
        found = self._run(requests.describe_acls, *_parts(acl_filter))
        return [_acl(pattern, entry) for pattern, own in found.items() for entry in own], for_code(0)

    def create_acls(self, acls: Sequence[ACL]) -> CreatedAcls:
        """Add entries: those that exist now as `succeeded`, and the errors of the others as `failed`.

        The cluster needs an authorizer::

            orders = ResourcePattern(ResourceType.TOPIC, "orders")
            admin.create_acls([ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders)])
        """
        if not all(isinstance(one, ACL) for one in acls):
            raise IllegalArgumentError("acls must be ACLs")
        response = self._run(requests.create_acls, [_parts(one) for one in acls])
        results: CreatedAcls = {"succeeded": [], "failed": []}
        for one, result in zip(acls, response.results, strict=True):
            if result.error_code:
                results["failed"].append(for_code(result.error_code))
            else:
                results["succeeded"].append(one)
        return results

    def delete_acls(self, acl_filters: Sequence[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], ErrorType]]:
        """Remove the entries that fit: for each filter what was removed, and its error or NoError.

        The cluster needs an authorizer::

            orders = ResourcePatternFilter(ResourceType.TOPIC, "orders", ACLResourcePatternType.LITERAL)
            admin.delete_acls([ACLFilter("User:alice", None, ACLOperation.ANY, ACLPermissionType.ANY, orders)])
        """
        if not all(isinstance(one, ACLFilter) for one in acl_filters):
            raise IllegalArgumentError("acl_filters must be ACLFilters")
        response = self._run(requests.delete_acls, [_parts(one) for one in acl_filters])
        return [
            (
                wanted,
                [
                    _acl(
                        Pattern(
                            ResourceType(each.resource_type),
                            each.resource_name,
                            PatternType(each.pattern_type),
                        ),
                        Entry(
                            each.principal,
                            each.host,
                            AclOperation(each.operation),
                            AclPermissionType(each.permission_type),
                        ),
                    )
                    for each in result.matching_acls
                ],
                for_code(result.error_code),
            )
            for wanted, result in zip(acl_filters, response.filter_results, strict=True)
        ]


def _parts(acl: ACLFilter) -> tuple[Pattern, Entry]:
    resource = acl.resource_pattern
    return (
        Pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
        Entry(acl.principal, acl.host, acl.operation, acl.permission_type),
    )


def _acl(pattern: Pattern, entry: Entry) -> ACL:
    return ACL(
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
        ResourcePattern(pattern.kind, pattern.name, pattern.pattern),
    )
