"""The node's small HTTP server: GET only, on the event loop, a few connections at a time.

It knows the protocol (h11), the token and the bounds. `ottla.metrics.routes` knows the pages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import h11

if TYPE_CHECKING:
    import socket
    import ssl

    from ottla.clock import Clock, Timer
    from ottla.credentials.secret import Secret

_logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
MAX_HEAD_BYTES: Final = 16 << 10
IDLE_S: Final = 60.0
"""A connection without a new request for this long is closed, also one whose client does not read."""
_MAX_PARAMETERS: Final = 16
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET request."""

    path: str
    query: Mapping[str, str]
    """The first value of each parameter."""
    accepts_gzip: bool = False


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a page answers."""

    body: bytes | list[bytes]
    """A large body comes in pieces."""
    status: int = 200
    content_type: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[HttpRequest], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class Site:
    """The pages, found by path; `open_to_all` ones need no token."""

    find: Callable[[str], Page | None]
    open_to_all: Callable[[str], bool]
    token: Secret | None = None


def plain(status: int, text: str) -> HttpResponse:
    """A short answer in words."""
    return HttpResponse(f"{text}\n".encode(), status)


class HttpServer:
    """Serves a site on sockets that are bound already."""

    def __init__(
        self, sockets: list[socket.socket], site: Site, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self._sockets = sockets
        self._site = site
        self._clock = clock
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of the first socket."""
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            server = await loop.create_server(
                lambda: _Connection(self._site, self._clock, self._connections), sock=sock, ssl=self._tls
            )
            self._servers.append(server)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections.copy():
            connection.abort()
        for sock in self._sockets:
            sock.close()


class _Connection(asyncio.Protocol):
    """One client. Its next request is read when the last one is answered."""

    def __init__(self, site: Site, clock: Clock, others: set[_Connection]) -> None:
        self._site = site
        self._clock = clock
        self._others = others
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._others) >= MAX_CONNECTIONS:
            self.abort()
            return
        self._others.add(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._others.discard(self)
        if self._idle is not None:
            self._idle.cancel()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._clock.call_later(IDLE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._next()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        return False

    def _next(self) -> None:
        """Take the next request, if it is whole and the last one is answered."""
        while self._task is None:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                if self._transport is not None:
                    self._transport.pause_reading()
                self._task = asyncio.get_running_loop().create_task(self._answer(event))
            elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return

    async def _answer(self, request: h11.Request) -> None:
        try:
            response = await self._respond(request)
        except asyncio.CancelledError:
            raise
        except Exception:
            # A page that fails must not stop the broker.
            _logger.exception("Unexpected error while answering %s", request.target[:200])
            response = plain(500, "This page failed; the node's log says why.")
        self._send(request, response)

    async def _respond(self, request: h11.Request) -> HttpResponse:
        headers = dict(request.headers)
        if request.method not in (b"GET", b"HEAD"):
            return HttpResponse(b"Only GET is served here.\n", 405, headers={"Allow": "GET, HEAD"})
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return plain(413, "A request without a body is expected.")
        target = urlsplit(request.target.decode("ascii", "replace"))
        path = unquote(target.path)
        if not self._may_read(path, headers.get(b"authorization", b"")):
            return HttpResponse(
                b"A token is needed: Authorization: Bearer ...\n", 401, headers={"WWW-Authenticate": "Bearer"}
            )
        page = self._site.find(path)
        if page is None:
            return plain(404, "There is no such page; / lists those that there are.")
        try:
            fields = parse_qs(target.query, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            return plain(400, "There are too many parameters.")
        query = {name: values[0] for name, values in fields.items()}
        return await page(HttpRequest(path, query, b"gzip" in headers.get(b"accept-encoding", b"")))

    def _may_read(self, path: str, authorization: bytes) -> bool:
        token = self._site.token
        if token is None or self._site.open_to_all(path):
            return True
        scheme, _, given = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and token.matches(given.strip().decode("utf-8", "replace"))

    def _send(self, request: h11.Request, response: HttpResponse) -> None:
        self._task = None
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        http = self._http
        pieces = [response.body] if isinstance(response.body, bytes) else response.body
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(sum(map(len, pieces)))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *response.headers.items(),
        ]
        written = http.send(h11.Response(status_code=response.status, headers=headers)) or b""
        transport.write(written)
        if request.method != b"HEAD":
            # With a known length a body is sent as it is: h11 counts it, and copies nothing.
            for piece in pieces:
                transport.writelines(http.send_with_data_passthrough(h11.Data(data=piece)) or ())
        else:
            http.send(h11.Data(data=b""))
        transport.write(http.send(h11.EndOfMessage()) or b"")
        self._wait()
        try:
            event = http.next_event() if http.their_state is h11.SEND_BODY else None
            if event is None or isinstance(event, h11.EndOfMessage):
                http.start_next_cycle()
                transport.resume_reading()
                self._next()
                return
        except h11.ProtocolError:
            pass
        transport.close()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Answer a request that is not HTTP as far as that is possible, and close."""
        transport = self._transport
        if transport is None:
            return
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = error.error_status_hint or 400
            body = b"This is not a request that can be answered.\n"
            head = h11.Response(
                status_code=status, headers=[("Content-Length", str(len(body))), ("Connection", "close")]
            )
            transport.write(
                (self._http.send(head) or b"")
                + (self._http.send(h11.Data(data=body)) or b"")
                + (self._http.send(h11.EndOfMessage()) or b"")
            )
        transport.close()
