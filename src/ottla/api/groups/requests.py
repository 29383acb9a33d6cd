"""What the APIs of groups share: who asks, and an answer that may be there already when it is waited for."""

from __future__ import annotations

from typing import Final

from ottla.api.base import Message, RequestContext
from ottla.coordinator.group.context import RequestInfo


def info_of(ctx: RequestContext) -> RequestInfo:
    """What a group operation needs to know of its request."""
    return RequestInfo(ctx.version, ctx.client_id or "", f"/{ctx.client_host}", ctx.principal)


_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, describe and alter configs: all that there is to be done with a group."""

_NOT_ASKED: Final = -(1 << 31)


def authorized_operations(request: Message) -> int:
    """What the client may do with a group, as a describe request tells it, if it asked for that."""
    return _OPERATIONS if request.include_authorized_operations else _NOT_ASKED
