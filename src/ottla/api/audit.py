"""What the audit file says about requests that change rights, users, quotas, tokens or configs: who changed what.

Names only: no value, password, salt or token of a request is ever written.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.enums import (
    AclOperation,
    AclPermissionType,
    ConfigResourceType,
    PatternType,
    ResourceType,
    ScramMechanism,
)

if TYPE_CHECKING:
    from ottla.api.base import RequestContext
    from ottla.broker.services import Node
    from ottla.wire.messages import (
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        AlterUserScramCredentialsRequest,
        CreateAclsRequest,
        DeleteAclsRequest,
        IncrementalAlterConfigsRequest,
    )


def _name(enum: type[Enum], code: int) -> str:
    try:
        return str(enum(code).name)
    except ValueError:
        return str(code)


def _created_acls(request: CreateAclsRequest) -> list[str]:
    return [
        f"{_name(AclPermissionType, each.permission_type)} {_name(AclOperation, each.operation)} "
        f"{each.principal} from {each.host} on {_name(ResourceType, each.resource_type)}:"
        f"{_name(PatternType, each.resource_pattern_type)}:{each.resource_name}"
        for each in request.creations
    ]


def _deleted_acls(request: DeleteAclsRequest) -> list[str]:
    return [
        f"{_name(AclPermissionType, each.permission_type)} {_name(AclOperation, each.operation)} "
        f"{each.principal_filter or '*'} from {each.host_filter or '*'} on "
        f"{_name(ResourceType, each.resource_type_filter)}:{_name(PatternType, each.pattern_type_filter)}:"
        f"{each.resource_name_filter or '*'}"
        for each in request.filters
    ]


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    return [f"delete {each.name} {_name(ScramMechanism, each.mechanism)}" for each in request.deletions] + [
        f"set {each.name} {_name(ScramMechanism, each.mechanism)}" for each in request.upsertions
    ]


def _configs(request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> list[str]:
    return [
        f"{_name(ConfigResourceType, each.resource_type)} {each.resource_name}: "
        + ", ".join(config.name for config in each.configs)
        for each in request.resources
    ]


def _quotas(request: AlterClientQuotasRequest) -> list[str]:
    return [
        ", ".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in each.entity)
        + ": "
        + ", ".join(("remove " if op.remove else "set ") + op.key for op in each.ops)
        for each in request.entries
    ]


def _nothing(request: object) -> list[str]:
    return []


_CHANGES: Final[dict[int, Callable[[Any], list[str]]]] = {
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _users,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.CREATE_DELEGATION_TOKEN: _nothing,
    ApiKey.RENEW_DELEGATION_TOKEN: _nothing,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _nothing,
}


def note_change(node: Node, ctx: RequestContext, request: object) -> None:
    """Write a request that changes something of security, before it is handled."""
    changes = _CHANGES.get(ctx.api_key)
    if node.audit is not None and changes is not None:
        node.audit.event(
            "change requested",
            {
                "principal": ctx.principal,
                "host": ctx.client_host,
                "request": ApiKey(ctx.api_key).name,
                "changes": changes(request),
            },
        )
