"""CreateAcls and DeleteAcls: access control lists as metadata records (KIP-801)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.controller.result import NO_ERROR, ApiError, ControllerResult
from ottla.errors import ErrorCode
from ottla.metadata.acl_filter import AclFilter
from ottla.metadata.image import AclEntry, MetadataImage
from ottla.wire.classes import WireMessage
from ottla.wire.enums import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import (
    AccessControlEntryRecord,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    RemoveAccessControlEntryRecord,
)

_logger = logging.getLogger(__name__)

MAX_RECORDS: Final = 10_000

_TYPES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
_OPERATIONS: Final = frozenset(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY}


def create_acls(
    image: MetadataImage,
    request: CreateAclsRequest,
    new_id: Callable[[], bytes],
    *,
    strict: bool = False,
) -> ControllerResult[CreateAclsResponse]:
    """CreateAclsRequest -> CreateAclsResponse: each ACL by itself; one that exists is not written again.

    `strict` refuses an ACL that lets everybody do everything to the cluster.
    """
    existing = set(image.acls.values())
    taken = set(image.acls)
    records: list[WireMessage] = []
    results: list[CreateAclsResponse.AclCreationResult] = []
    too_many = len(request.creations) > MAX_RECORDS
    for creation in request.creations:
        error = _TOO_MANY if too_many else _why_not_created(creation)
        if not error.failed and _opens_cluster(creation):
            if strict:
                error = _OPENS_CLUSTER
            else:
                _logger.warning("An ACL lets every client do everything to the cluster: ALLOW ALL for User:*")
        results.append(
            CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message)
        )
        if error.failed:
            continue
        acl = AclEntry(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        if acl in existing:
            continue
        existing.add(acl)
        acl_id = new_id()
        while acl_id in taken:
            acl_id = new_id()
        taken.add(acl_id)
        records.append(AccessControlEntryRecord(id=acl_id, **acl._asdict()))
    return ControllerResult(records, CreateAclsResponse(results=results))


_TOO_MANY: Final = ApiError(ErrorCode.INVALID_REQUEST, f"A request may create {MAX_RECORDS} ACLs at most")


_OPENS_CLUSTER: Final = ApiError(
    ErrorCode.INVALID_REQUEST,
    "ottla.security.profile=strict refuses an ACL that lets User:* do everything to the cluster",
)


def _opens_cluster(acl: CreateAclsRequest.AclCreation) -> bool:
    return (
        acl.resource_type == ResourceType.CLUSTER
        and acl.operation == AclOperation.ALL
        and acl.permission_type == AclPermissionType.ALLOW
        and acl.principal == "User:*"
    )


def _why_not_created(acl: CreateAclsRequest.AclCreation) -> ApiError:
    if acl.resource_type not in _TYPES:
        return _invalid(f"Invalid resourceType {_name(ResourceType, acl.resource_type)}")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return _invalid("Invalid empty resource name")
    if acl.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return _invalid(f"Invalid patternType {_name(PatternType, acl.resource_pattern_type)}")
    if acl.operation not in _OPERATIONS:
        return _invalid(f"Invalid operation {_name(AclOperation, acl.operation)}")
    if acl.permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        return _invalid(f"Invalid permissionType {_name(AclPermissionType, acl.permission_type)}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        return _invalid("The principal of an ACL has the form principalType:principalName")
    return NO_ERROR


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, why)


def _name(
    enum: type[ResourceType] | type[PatternType] | type[AclOperation] | type[AclPermissionType], value: int
) -> str:
    return enum(value).name if value in list(enum) else "UNKNOWN"


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
    """DeleteAclsRequest -> DeleteAclsResponse: for each filter the ACLs that it matched, all of them or none."""
    removed: dict[bytes, None] = {}
    results: list[DeleteAclsResponse.DeleteAclsFilterResult] = []
    for wanted in request.filters:
        acl_filter = AclFilter(
            wanted.resource_type_filter,
            wanted.resource_name_filter,
            wanted.pattern_type_filter,
            wanted.principal_filter,
            wanted.host_filter,
            wanted.operation,
            wanted.permission_type,
        )
        if acl_filter.unknown:
            results.append(_failed(_invalid("The filter has an unknown value.")))
            continue
        found = {acl_id: acl for acl_id, acl in image.acls.items() if acl_filter.matches(acl)}
        removed.update(dict.fromkeys(found))
        if len(removed) > MAX_RECORDS:
            error = _invalid(f"Cannot remove more than {MAX_RECORDS} acls in a single delete operation.")
            return ControllerResult(
                [], DeleteAclsResponse(filter_results=[_failed(error) for _ in request.filters])
            )
        results.append(
            DeleteAclsResponse.DeleteAclsFilterResult(
                matching_acls=[
                    DeleteAclsResponse.DeleteAclsMatchingAcl(**acl._asdict()) for acl in found.values()
                ]
            )
        )
    records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
    return ControllerResult(records, DeleteAclsResponse(filter_results=results))


def _failed(error: ApiError) -> DeleteAclsResponse.DeleteAclsFilterResult:
    return DeleteAclsResponse.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
