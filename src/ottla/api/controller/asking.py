"""How an API asks the controller of its own node: which one it is, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.api.base import PARKED, Answer, ErrorAnswer, Message, RequestContext
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.controller.controller import Controller

Ask = Callable[[Message, Callable[[Message], None], Callable[[KafkaError], None]], None]


def controller_of(node: Any) -> Controller:
    """The controller of this node. Raises NOT_CONTROLLER where it has none."""
    controller: Controller | None = node.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no controller.")
    return controller


def park(ctx: RequestContext, request: Message, ask: Ask, on_error: ErrorAnswer) -> Answer:
    """Ask, and answer when the controller does."""
    ask(request, ctx.respond, lambda error: ctx.respond(on_error(ctx, request, error)))
    return PARKED
