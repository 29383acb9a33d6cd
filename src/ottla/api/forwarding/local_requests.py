"""Serves requests without a connection of their own: from this process, or inside an envelope."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar, cast

from ottla.api.audit import note_change
from ottla.api.authorization import check
from ottla.api.base import UNEXPECTED, AnyApi, Outcome, RequestContext
from ottla.api.node_requests import check_sender
from ottla.errors import ApiException
from ottla.security.grants import Grants
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.api.throttling import Meter
    from ottla.broker.services import Node
    from ottla.wire.classes import WireRequest, WireResponse

Resp = TypeVar("Resp", bound="WireResponse")

_logger = logging.getLogger(__name__)


class InnerRequest(RequestContext):
    """A request whose response goes to a function, once."""

    __slots__ = (
        "_grants",
        "_on_response",
        "api_key",
        "client_host",
        "client_id",
        "connection_id",
        "correlation_id",
        "forwarded",
        "listener_name",
        "local_host",
        "local_port",
        "meter",
        "on_controller_listener",
        "principal",
        "received_at",
        "token_authenticated",
        "version",
    )

    def __init__(
        self,
        on_response: Callable[[WireResponse], object],
        *,
        api_key: int,
        version: int,
        received_at: float,
        correlation_id: int = 0,
        client_id: str | None = None,
        principal: str = "User:ANONYMOUS",
        client_host: str = "",
        outer: RequestContext | None = None,
        meter: Meter | None = None,
        token_authenticated: bool = False,
    ) -> None:
        self._on_response: Callable[[WireResponse], object] | None = on_response
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = principal
        self.client_host = client_host
        self.received_at = received_at
        self.meter = meter
        self.token_authenticated = token_authenticated
        self._grants = Grants(principal, client_host, internal=outer is None)
        self.on_controller_listener = True
        self.forwarded = outer is not None
        self.listener_name = "" if outer is None else outer.listener_name
        self.local_host = "" if outer is None else outer.local_host
        self.local_port = -1 if outer is None else outer.local_port
        self.connection_id = "" if outer is None else outer.connection_id

    @property
    def grants(self) -> Grants:
        return self._grants

    def respond(self, response: WireResponse) -> None:
        on_response, self._on_response = self._on_response, None
        if on_response is None:
            return
        if self.meter is not None:
            if self.meter.timed:
                self.meter.answered()
            if self.meter.throttle_ms > 0 and "throttle_time_ms" in response.__struct_fields__:
                # The broker that forwarded the request mutes the client.
                response.throttle_time_ms = self.meter.throttle_ms  # type: ignore[attr-defined]
        on_response(response)

    def abort(self) -> None:
        self._on_response = None

    @property
    def closed(self) -> bool:
        return self._on_response is None

    def on_close(self, callback: Callable[[], None]) -> None:
        """Do nothing: the sender does not disconnect before the response."""

    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Do nothing: the sender lives as long as this node, or is behind another node's connection."""


def serve(node: Node, api: AnyApi, ctx: InnerRequest, message: WireRequest[WireResponse]) -> None:
    """Handle a request. Every failure becomes its response."""
    try:
        check(node, api, ctx, message)
        check_sender(node, api, ctx, message)
        if ctx.forwarded and node.audit is not None:
            note_change(node, ctx, message)
        answer = api.handle(node, ctx, message)
    except ApiException as error:
        answer = api.error_answer(ctx, message, error)
    except Exception:
        _logger.exception(
            "Unexpected error in a request of API %s version %d", ApiKey(api.key).name, ctx.version
        )
        answer = api.error_answer(ctx, message, UNEXPECTED)
    if not isinstance(answer, Outcome):
        ctx.respond(answer)
    elif ctx.meter is not None:
        ctx.meter.parked()


def serve_locally(node: Node, message: WireRequest[Resp], done: Callable[[Resp], object]) -> None:
    """Handle a request of this process as this node's controller listener would."""
    # Imported here because the registry lists this package.
    from ottla.api.registry import supported

    api = supported(on_controller_listener=True)[message.API_KEY]
    ctx = InnerRequest(
        cast("Callable[[WireResponse], object]", done),
        api_key=api.key,
        version=api.versions[-1],
        client_id=f"node-{node.node_id}",
        received_at=node.clock.monotonic(),
    )
    serve(node, api, ctx, message)
