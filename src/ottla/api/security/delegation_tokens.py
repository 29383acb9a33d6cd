"""What the four APIs of delegation tokens share: who may use them, and the way to the controller.

As in Kafka, tokens are for clients that have said who they are: not over PLAINTEXT, not by one-way TLS, and not by
someone who came with a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.api.base import PARKED, ErrorAnswer, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import failure, forward_to_controller
from ottla.api.forwarding.request_forwarding import forward_part
from ottla.config.listeners import SecurityProtocol
from ottla.errors import ApiException, ErrorCode
from ottla.security.principal import ANONYMOUS
from ottla.wire.classes import WireRequest, WireResponse

if TYPE_CHECKING:
    from ottla.broker.services import Node

Req = TypeVar("Req", bound=WireRequest[WireResponse])
Resp = TypeVar("Resp", bound=WireResponse)

_NOT_ALLOWED = ApiException(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
    "authenticated channels.",
)


def check_allowed(node: Node, ctx: RequestContext) -> None:
    """Refuse requests about tokens on connections that they are not for."""
    protocol = next((each.protocol for each in node.config.listeners if each.name == ctx.listener_name), None)
    # A request that this node forwards to its own controller comes by no listener; it was checked where it came in.
    anonymous = protocol is SecurityProtocol.SSL and ctx.principal == str(ANONYMOUS)
    if ctx.token_authenticated or protocol is SecurityProtocol.PLAINTEXT or anonymous:
        raise _NOT_ALLOWED


def decide(node: Node, ctx: RequestContext, request: Req, on_error: ErrorAnswer[Req, Resp]) -> Outcome:
    """Have the active controller decide."""
    if ctx.on_controller_listener:
        return forward_to_controller(node, ctx, request, on_error)
    forward_part(node, ctx, request, ctx.respond, failure(ctx, request, on_error))
    return PARKED
