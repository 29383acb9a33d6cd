"""Request helpers that the APIs of groups share."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.api.authorization import NOT_ASKED, allowed, authorized_operations, split
from ottla.api.base import RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.group.context import RequestInfo
from ottla.ids import GroupId
from ottla.wire.enums import AclOperation, ResourceType


def info_of(ctx: RequestContext, broker: Broker | None = None) -> RequestInfo:
    """What a group operation needs of its request's context. With a broker, also which topics it may describe."""
    info = RequestInfo(ctx.version, ctx.client_id or "", f"/{ctx.client_host}", ctx.principal)
    if broker is None or broker.authorizer is None:
        return info

    def may_describe(topic: str) -> bool:
        return allowed(broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, log_denied=False)

    return info._replace(may_describe=may_describe)


def group_operations(broker: Broker, ctx: RequestContext, group_id: GroupId, include: bool) -> int:
    """The operations that the client may do on a group, for a describe response that includes them."""
    return authorized_operations(broker, ctx, ResourceType.GROUP, group_id) if include else NOT_ASKED


def split_groups(
    broker: Broker, ctx: RequestContext, operation: AclOperation, group_ids: Iterable[GroupId]
) -> tuple[list[GroupId], list[GroupId]]:
    """The groups that the client may use, and those that it may not."""
    return split(broker, ctx, operation, ResourceType.GROUP, group_ids, lambda group_id: group_id)
