"""Request helpers that the APIs of groups share."""

from __future__ import annotations

from typing import Final

from ottla.api.base import RequestContext
from ottla.coordinator.group.context import RequestInfo


def info_of(ctx: RequestContext) -> RequestInfo:
    """What a group operation needs of its request's context."""
    return RequestInfo(ctx.version, ctx.client_id or "", f"/{ctx.client_host}", ctx.principal)


_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, describe configs and alter configs: all operations on a group."""

_NOT_REQUESTED: Final = -(1 << 31)


def authorized_operations(include: bool) -> int:
    """The operations that the client may do on a group, for a describe response that includes them."""
    return _OPERATIONS if include else _NOT_REQUESTED
