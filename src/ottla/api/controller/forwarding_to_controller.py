"""How an API asks the controller of its own node."""

from __future__ import annotations

from collections.abc import Callable

from ottla.api.base import PARKED, ErrorAnswer, Message, Outcome, RequestContext
from ottla.errors import ApiException

Ask = Callable[[Message, Callable[[Message], None], Callable[[ApiException], None]], None]


def park(
    ctx: RequestContext, request: Message, ask: Ask, on_error: ErrorAnswer[Message, Message]
) -> Message | Outcome:
    """Ask, and answer when the controller does."""
    ask(request, ctx.respond, lambda error: ctx.respond(on_error(ctx, request, error)))
    return PARKED
