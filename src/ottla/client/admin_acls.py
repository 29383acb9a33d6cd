"""The admin client's part about access control entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.client.acl_types import ACL, ACLFilter, ResourcePattern
from ottla.client.admin_connections import Connections
from ottla.client.errors import BrokerResponseError, IllegalArgumentError, for_code
from ottla.wire import messages as m
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

ErrorType = type[BrokerResponseError]


class AclAdmin:
    """Look at access control entries, make and delete them; the cluster needs an authorizer for it."""

    _connections: Connections

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], ErrorType]:
        """The entries that fit, and NoError."""
        answer, _ = self._connections.ask(_filter(m.DescribeAclsRequest, acl_filter))
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "the entries cannot be listed")
        return [_entry(one, of) for of in answer.resources for one in of.acls], for_code(0)

    def create_acls(self, acls: Sequence[ACL]) -> dict[str, list[Any]]:
        """Make entries: those that there are now as `succeeded`, and the errors of the others as `failed`."""
        if not all(isinstance(one, ACL) for one in acls):
            raise IllegalArgumentError("acls must be ACLs")
        creation = m.CreateAclsRequest.AclCreation
        request = m.CreateAclsRequest(
            creations=[
                creation(
                    resource_type=one.resource_pattern.resource_type,
                    resource_name=one.resource_pattern.resource_name,
                    resource_pattern_type=one.resource_pattern.pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission_type,
                )
                for one in acls
            ]
        )
        answer, _ = self._connections.ask(request)
        results: dict[str, list[Any]] = {"succeeded": [], "failed": []}
        for one, result in zip(acls, answer.results, strict=True):
            if result.error_code:
                results["failed"].append(for_code(result.error_code))
            else:
                results["succeeded"].append(one)
        return results

    def delete_acls(self, acl_filters: Sequence[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], ErrorType]]:
        """Delete what fits: for each filter the entries that were deleted, and its error or NoError."""
        if not all(isinstance(one, ACLFilter) for one in acl_filters):
            raise IllegalArgumentError("acl_filters must be ACLFilters")
        wanted = m.DeleteAclsRequest.DeleteAclsFilter
        request = m.DeleteAclsRequest(filters=[_filter(wanted, one) for one in acl_filters])
        answer, _ = self._connections.ask(request)
        return [
            (wanted, [_entry(each, each) for each in result.matching_acls], for_code(result.error_code))
            for wanted, result in zip(acl_filters, answer.filter_results, strict=True)
        ]


def _filter(message: type, wanted: ACLFilter) -> Any:
    pattern = wanted.resource_pattern
    return message(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.resource_name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _entry(told: Any, resource: Any) -> ACL:
    return ACL(
        told.principal,
        told.host,
        AclOperation(told.operation),
        AclPermissionType(told.permission_type),
        ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        ),
    )
