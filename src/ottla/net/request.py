"""One request in flight: a slot in its connection's queue of responses.

It encodes the response; the connection keeps the order of responses and writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.api.base import AnyApi, RequestContext
from ottla.broker.response_errors import error_codes, reports
from ottla.counters import RequestCounters
from ottla.errors import ErrorCode
from ottla.security.grants import audit_log
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireResponse
from ottla.wire.errors import EncodeError
from ottla.wire.headers import encode_response
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.net.connection import Connection
    from ottla.security.grants import Grants

_logger = logging.getLogger(__name__)

_audits: Final = audit_log.isEnabledFor
_DEBUG: Final = logging.DEBUG
_MAX_COUNTED: Final = 1000
"""Entries of one response that are searched for errors to count."""
_COUNTED_BY_HANDLER: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""These count their errors themselves: a search of their responses would take longer than their making."""


class Request(RequestContext):
    """The `ctx` of handlers. `buffers` is None until the request is answered."""

    __slots__ = (
        "_connection",
        "_on_close",
        "api",
        "api_key",
        "began",
        "buffers",
        "client",
        "client_id",
        "closed_by_client",
        "completed_at",
        "correlation_id",
        "counters",
        "frame",
        "handled_at",
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
        counters: RequestCounters,
    ) -> None:
        self._connection = connection
        self._on_close: list[Callable[[], None]] | None = None
        self.api = api
        self.api_key = api.key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        self.counters = counters
        counters.taken += 1
        self.began = 0.0
        """When its handler began, if this request is one of those whose parts are timed; so are the next two."""
        self.handled_at = 0.0
        self.completed_at = 0.0
        self.buffers: list[Buffer] | None = None
        self.size = 0
        self.frame: bytes | None = None
        """The request as it arrived, if it may have to be forwarded to the active controller."""
        self.closed_by_client = False
        self.client = connection.client
        """The client as it was known when it sent the request: it may log in again before the response."""

    # Properties, as most requests are asked for none of these.

    @property
    def principal(self) -> str:  # type: ignore[override]
        return self.client.principal

    @property
    def client_host(self) -> str:  # type: ignore[override]
        return self.client.client_host

    @property
    def listener_name(self) -> str:  # type: ignore[override]
        return self.client.listener_name

    @property
    def local_host(self) -> str:  # type: ignore[override]
        return self.client.local_host

    @property
    def local_port(self) -> int:  # type: ignore[override]
        return self.client.local_port

    @property
    def on_controller_listener(self) -> bool:  # type: ignore[override]
        return self.client.on_controller_listener

    @property
    def connection_id(self) -> str:  # type: ignore[override]
        return self.client.connection_id

    @property
    def token_authenticated(self) -> bool:  # type: ignore[override]
        return self.client.token_authenticated

    @property
    def node_ids(self) -> frozenset[int]:  # type: ignore[override]
        return self.client.node_ids

    @property
    def client_software(self) -> tuple[str, str]:  # type: ignore[override]  # asked for by few requests
        return self._connection.software

    @property
    def grants(self) -> Grants:
        connection = self._connection
        return connection.known_grants or connection.grants

    def known_topics(self, generation: int) -> Mapping[str | bytes, int]:
        grants = self._connection.known_grants
        if grants is not None and grants.generation == generation and not _audits(_DEBUG):
            return grants.topics
        return {}

    def respond(self, response: WireResponse) -> None:
        if self.buffers is not None or self.closed_by_client:
            return
        if self.frame is not None and reports(response, ErrorCode.NOT_CONTROLLER):
            # This node was the active controller, and another one is now.
            self._connection.dispatcher.forward(self)
            return
        if self.api_key not in _COUNTED_BY_HANDLER:
            for code in error_codes(response, _MAX_COUNTED):
                self.counters.error(code)
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

    def note_error(self, code: int) -> None:
        self.counters.error(code)

    def note_software(self, name: str, version: str) -> None:
        self._connection.identify(name, version)

    def from_follower(self) -> None:
        follower = self.counters.follower
        if follower is not None:
            self.counters.taken -= 1
            follower.taken += 1
            self.counters = follower

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
        if self.began:
            self.completed_at = self._connection.monotonic()
        self._connection.answered(self)

    def note_parts(self, written_from: float, written_at: float) -> None:
        """Count how long the parts of a timed request took."""
        counters = self.counters
        counters.queue.add(self.began - self.received_at)
        if self.handled_at:
            counters.local.add(self.handled_at - self.began)
            counters.remote.add(self.completed_at - self.handled_at)
        else:
            counters.local.add(self.completed_at - self.began)
            counters.remote.add(0.0)
        counters.response_queue.add(written_from - self.completed_at)
        counters.send.add(written_at - written_from)

    def client_gone(self) -> list[Callable[[], None]]:
        """The connection is lost. Returns the callbacks that wait for that."""
        self.closed_by_client = True
        self.counters.dropped += 1
        callbacks, self._on_close = self._on_close or [], None
        return callbacks

    def __str__(self) -> str:
        return f"{ApiKey(self.api_key).name} version {self.version} from {self.connection_id}"
