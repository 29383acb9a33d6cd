"""Forwards a request of an API to this node's controller, and its decision to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from ottla.api.base import PARKED, ErrorAnswer, Outcome, RequestContext
from ottla.controller.decisions import Requester
from ottla.controller.topics import Charge, without_quota
from ottla.errors import ApiException
from ottla.wire.classes import WireRequest, WireResponse

if TYPE_CHECKING:
    from ottla.broker.services import Node

Req = TypeVar("Req", bound=WireRequest[WireResponse])
Resp = TypeVar("Resp", bound=WireResponse)

Failed = Callable[[ApiException], None]


def forward_to_controller(
    node: Node,
    ctx: RequestContext,
    request: Req,
    on_error: ErrorAnswer[Req, Resp],
    done: Callable[[Resp], None] | None = None,
    *,
    strict_from: int | None = None,
) -> Outcome:
    """Have the controller decide a request of its table (`ottla.controller.decisions`).

    `done` answers with the controller's response; without it the response is the answer. `strict_from` is the first
    version in which the quota of partitions may refuse a part; None for requests that it does not count for.
    """
    # The response of this request is of the type that `done` takes.
    respond = ctx.respond if done is None else cast("Callable[[WireResponse], None]", done)
    node.controller.handle(
        request,
        respond,
        failure(ctx, request, on_error),
        version=ctx.version,
        requester=Requester(ctx.principal, _charge(node, ctx, strict_from)),
    )
    return PARKED


def _charge(node: Node, ctx: RequestContext, strict_from: int | None) -> Charge:
    meter = ctx.meter
    if meter is None or strict_from is None:
        return without_quota
    quota = meter.mutation_quota(strict=ctx.version >= strict_from)
    if quota is None:
        return without_quota
    return lambda partitions: quota.record(partitions, int(node.clock.monotonic() * 1000))


def failure(ctx: RequestContext, request: Req, on_error: ErrorAnswer[Req, Resp]) -> Failed:
    """A callback that answers the request with an error."""
    return lambda error: ctx.respond(on_error(ctx, request, error))
