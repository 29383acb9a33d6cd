"""The rights of a request: what the dispatcher and the handlers ask before anything is done or looked up.

Without an authorizer everything is allowed. A topic that a client may not describe is refused before it is looked up,
so that its existence does not show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.api.base import AnyApi, RequestContext, Unchecked
from ottla.errors import ApiException, ErrorCode
from ottla.security.grants import EVERY_OPERATION, Action, audit_log
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.services import Node
    from ottla.wire.classes import WireMessage

T = TypeVar("T")

_DEBUG: Final = logging.DEBUG
_audits: Final = audit_log.isEnabledFor
NOT_ASKED: Final = -(1 << 31)
"""`authorized_operations` of an answer that was not asked for them."""

_REFUSALS: Final = {
    ResourceType.TOPIC: ApiException(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: ApiException(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: ApiException(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    ),
    ResourceType.TRANSACTIONAL_ID: ApiException(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    ),
    ResourceType.DELEGATION_TOKEN: ApiException(
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."
    ),
}


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_Op = AclOperation
_OPERATIONS: Final = {
    ResourceType.TOPIC: _bits(
        _Op.READ,
        _Op.WRITE,
        _Op.CREATE,
        _Op.DESCRIBE,
        _Op.DELETE,
        _Op.ALTER,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: _bits(_Op.READ, _Op.DESCRIBE, _Op.DELETE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
    ResourceType.CLUSTER: _bits(
        _Op.CREATE,
        _Op.CLUSTER_ACTION,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
        _Op.ALTER,
        _Op.DESCRIBE,
    ),
}
"""The operations that `authorized_operations` reports, by the type of the resource."""


def refusal(kind: ResourceType) -> ApiException:
    """The error of a request, or of an item, that is not allowed."""
    return _REFUSALS[kind]


def allowed(
    node: Node,
    ctx: RequestContext,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    *,
    log_denied: bool = True,
) -> bool:
    """Whether the client may do this with the resource."""
    authorizer = node.authorizer
    if authorizer is None:
        return True
    grants = ctx.grants
    # Most requests end here: it was decided before, and nobody wants to read of it in the audit log.
    if (
        grants.generation == authorizer.generation
        and grants.masks[kind].get(name, 0) >> operation & 1
        and not _audits(_DEBUG)
    ):
        return True
    return authorizer.authorize(grants, Action(operation, kind, name, log_denied=log_denied), ctx.api_key)


def cluster_allowed(
    node: Node, ctx: RequestContext, operation: AclOperation, *, log_denied: bool = True
) -> bool:
    """Whether the client may do this with the cluster."""
    return allowed(node, ctx, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)


def require(node: Node, ctx: RequestContext, operation: AclOperation, kind: ResourceType, name: str) -> None:
    """Raise the refusal of the resource's type unless the client may do this."""
    if not allowed(node, ctx, operation, kind, name):
        raise refusal(kind)


def split(
    node: Node,
    ctx: RequestContext,
    operation: AclOperation,
    kind: ResourceType,
    items: Iterable[T],
    name_of: Callable[[T], str],
    *,
    log_denied: bool = True,
) -> tuple[list[T], list[T]]:
    """The items that the client may use, and those that it may not. Each name is checked once."""
    items = list(items)
    if node.authorizer is None:
        return items, []
    decided: dict[str, bool] = {}
    granted: list[T] = []
    denied: list[T] = []
    for item in items:
        name = name_of(item)
        may = decided.get(name)
        if may is None:
            may = decided[name] = allowed(node, ctx, operation, kind, name, log_denied=log_denied)
        (granted if may else denied).append(item)
    return granted, denied


def some_allowed(node: Node, ctx: RequestContext, operation: AclOperation, kind: ResourceType) -> bool:
    """Whether the client may do this with at least one resource of the type."""
    authorizer = node.authorizer
    return authorizer is None or authorizer.authorize_by_type(ctx.grants, operation, kind)


def authorized_operations(node: Node, ctx: RequestContext, kind: ResourceType, name: str) -> int:
    """The bits of `authorized_operations`: what the client may do with the resource."""
    authorizer = node.authorizer
    mask = EVERY_OPERATION if authorizer is None else authorizer.operations(ctx.grants, kind, name)
    return mask & _OPERATIONS[kind]


def check(node: Node, api: AnyApi, ctx: RequestContext, request: WireMessage) -> None:
    """Check the rights that an API declares for whole requests. Raises the refusal."""
    if node.authorizer is None or isinstance(api.needs, Unchecked):
        return
    if api.needs is None:
        raise refusal(ResourceType.CLUSTER)
    for operation, kind, field in api.needs:
        name = CLUSTER_NAME if field is None else getattr(request, field)
        require(node, ctx, operation, kind, name)
