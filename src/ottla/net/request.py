"""One request in flight: a slot in its connection's queue of responses.

It encodes the response; the connection keeps the order of responses and writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from ottla.api.base import AnyApi, RequestContext
from ottla.broker.response_errors import reports
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireResponse
from ottla.wire.errors import EncodeError
from ottla.wire.headers import encode_response
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.net.connection import Connection
    from ottla.security.authorizer import Grants


_logger = logging.getLogger(__name__)


class Request(RequestContext):
    """The `ctx` of handlers. `buffers` is None until the request is answered."""

    __slots__ = (
        "_connection",
        "_on_close",
        "api",
        "api_key",
        "buffers",
        "client_host",
        "client_id",
        "closed_by_client",
        "connection_id",
        "correlation_id",
        "frame",
        "listener_name",
        "local_host",
        "local_port",
        "on_controller_listener",
        "principal",
        "received_at",
        "size",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api: AnyApi,
        version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
    ) -> None:
        self._connection = connection
        self._on_close: list[Callable[[], None]] | None = None
        self.api = api
        self.api_key = api.key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        self.buffers: list[Buffer] | None = None
        self.size = 0
        self.frame: bytes | None = None
        """The request as it arrived, if it may have to be forwarded to the active controller."""
        self.closed_by_client = False
        client = connection.client
        self.principal = client.principal
        self.client_host = client.client_host
        self.listener_name = client.listener_name
        self.local_host = client.local_host
        self.local_port = client.local_port
        self.on_controller_listener = client.on_controller_listener
        self.connection_id = client.connection_id

    @property
    def node_ids(self) -> frozenset[int]:  # type: ignore[override]
        return self._connection.client.node_ids

    @property
    def grants(self) -> Grants:
        return self._connection.grants

    def respond(self, response: WireResponse) -> None:
        if self.buffers is not None or self.closed_by_client:
            return
        if self.frame is not None and reports(response, ErrorCode.NOT_CONTROLLER):
            # This node was the active controller, and another one is now.
            self._connection.dispatcher.forward(self)
            return
        try:
            buffers = encode_response(self.correlation_id, response, self.version)
        except EncodeError:
            _logger.exception("The response to %s cannot be encoded; closing its connection", self)
            self.complete([], 0)
            self.abort()
            return
        self.complete(buffers, len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers)))

    def parked(self) -> None:
        """The handler has returned, and the response comes later."""

    def no_response(self) -> None:
        """The client expects no response."""
        self.complete([], 0)

    def forwarded_answer(self, answer: bytes) -> None:
        """Answer with the active controller's response, as it came without its size."""
        size = len(answer)
        self.complete([size.to_bytes(4, "big"), answer], size + 4)

    def abort(self) -> None:
        self._connection.close()

    @property
    def closed(self) -> bool:
        return self.closed_by_client

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._on_close is None:
            self._on_close = [callback]
        else:
            self._on_close.append(callback)

    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        self._connection.on_disconnect[key] = callback

    def complete(self, buffers: list[Buffer], size: int) -> None:
        """Put the encoded response into the slot and let the connection write it. An empty list is no response."""
        self.buffers = buffers
        self.size = size
        self._on_close = None
        self._connection.answered(self)

    def client_gone(self) -> list[Callable[[], None]]:
        """The connection is lost. Returns the callbacks that wait for that."""
        self.closed_by_client = True
        callbacks, self._on_close = self._on_close or [], None
        return callbacks

    def __str__(self) -> str:
        return f"{ApiKey(self.api_key).name} version {self.version} from {self.connection_id}"
