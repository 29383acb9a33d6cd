"""One request in flight: a slot in its connection's queue of answers.

It knows who asks and takes the answer; the order of answers is kept by the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from ottla.api.base import AnyApi, RequestContext
from ottla.wire.classes import WireResponse
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.net.connection import Connection


class Request(RequestContext):
    """What handlers see as their `ctx`. `buffers` is None until the answer is there."""

    __slots__ = (
        "_connection",
        "_on_close",
        "api",
        "api_key",
        "buffers",
        "client_host",
        "client_id",
        "closed_by_peer",
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
        """The request as it came, where it may have to be passed on."""
        self.closed_by_peer = False
        peer = connection.peer
        self.principal = peer.principal
        self.client_host = peer.client_host
        self.listener_name = peer.listener_name
        self.local_host = peer.local_host
        self.local_port = peer.local_port
        self.on_controller_listener = peer.on_controller_listener
        self.connection_id = peer.connection_id

    def respond(self, response: WireResponse) -> None:
        if self.buffers is None and not self.closed_by_peer:
            self._connection.dispatcher.answer(self, response)

    def abort(self) -> None:
        self._connection.close()

    @property
    def closed(self) -> bool:
        return self.closed_by_peer

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._on_close is None:
            self._on_close = [callback]
        else:
            self._on_close.append(callback)

    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        self._connection.on_disconnect[key] = callback

    def complete(self, buffers: list[Buffer], size: int) -> None:
        """Put the encoded answer (none at all for an empty list) into the slot and let the connection write it."""
        self.buffers = buffers
        self.size = size
        self._on_close = None
        self._connection.answered(self)

    def peer_gone(self) -> list[Callable[[], None]]:
        """The connection is lost: what has to be called because of it."""
        self.closed_by_peer = True
        callbacks, self._on_close = self._on_close or [], None
        return callbacks
