"""The registry as an ASGI application: limits, media types, authentication, leadership, and errors as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ottla.json_types import Json
from ottla.registry.errors import RegistryError, forwarding_failed
from ottla.registry.limits import MAX_BODY_BYTES
from ottla.registry.rest.auth import Users
from ottla.registry.rest.forward import FORWARDED, READ_UP_TO, forward
from ottla.registry.rest.http import (
    MEDIA_TYPES,
    Answer,
    Handler,
    Request,
    answer_type,
    check_content_type,
    in_utf8,
    split_path,
    split_query,
)
from ottla.registry.rest.places import subject_of, without_aliases
from ottla.registry.rest.routes import Api
from ottla.registry.roles import Roles

_logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
"""A scope or a message of ASGI."""
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

_MAX_CACHED: Final = 10_000
_MAX_CACHED_BYTES: Final = 8 << 20
_BODY_TIMEOUT_S: Final = 30.0
_MAX_DRAINED_BYTES: Final = 8 * MAX_BODY_BYTES


class App:
    """Serves requests. Answers to GETs are kept until the state changes."""

    def __init__(self, api: Api, roles: Roles, users: Users | None = None) -> None:
        self.api = api
        self._roles = roles
        self._users = users
        self._cache: dict[tuple[bytes, bytes, str], tuple[bytes, bytes]] = {}
        self._cached_bytes = 0
        self._cached_at = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        kind = MEDIA_TYPES[0]
        try:
            kind = answer_type(headers.get("accept", ""))
            status, body, kind = await self._answer(scope, method, headers, receive, kind)
        except RegistryError as error:
            status, body = error.status, Answer({"error_code": error.code, "message": error.message}).body()
        except TimeoutError:
            text = f"The body did not arrive within {_BODY_TIMEOUT_S:g} seconds."
            status, body = 408, Answer({"error_code": 408, "message": text}).body()
        except Exception:
            _logger.exception("The request %s %s failed", method, scope.get("path"))
            text = "The registry failed on this request; its log has the reason."
            status, body = 500, Answer({"error_code": 50001, "message": text}).body()
        more: list[tuple[bytes, bytes]] = []
        if FORWARDED in headers:
            more.append((READ_UP_TO.encode(), ",".join(map(str, self.api.offsets())).encode()))
        await _send(send, status, body, kind, scope["method"] == "HEAD", more)

    async def _answer(
        self, scope: Scope, method: str, headers: dict[str, str], receive: Receive, kind: str
    ) -> tuple[int, bytes, str]:
        user = await self._users.authenticate(headers.get("authorization", "")) if self._users else None
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        place = (raw_path, scope["query_string"], user or "")
        changes = self.api.changes()
        if changes != self._cached_at:
            self._cache.clear()
            self._cached_bytes = 0
            self._cached_at = changes
        if method == "GET" and place in self._cache:
            body, cached_kind = self._cache[place]
            return 200, body, cached_kind.decode() or kind
        request = _request(scope, method, headers, raw_path)
        # Roles ask for the subject itself, so that an alias opens no other one.
        request.segments = without_aliases(request.segments, request.context, self.api.registry.state)
        if request.query.get("subject") and request.segments[:1] == ("schemas",):
            given = request.query["subject"]
            request.query["subject"] = subject_of(given, request.context, self.api.registry.state)
        request.user = user
        handler, words = self.api.routes.find(method, request.segments)
        if self._users and user is not None:
            self._users.authorize(user, method, request.segments, request.context)
        if method in ("POST", "PUT"):
            check_content_type(headers.get("content-type", ""))
            request.body = in_utf8(await _body(receive), headers.get("content-type", ""))
        if handler in self.api.extra.handlers:
            await self.api.extra.extras.ready()
        if handler in self.api.writes:
            found = await self._write(request, handler, words)
        else:
            await self._roles.until_ready()
            found = await handler(request, words)
        answer = found if isinstance(found, Answer) else Answer(found)
        body = answer.body()
        size = len(body) + len(raw_path) + len(scope["query_string"])
        room = len(self._cache) < _MAX_CACHED and self._cached_bytes + size <= _MAX_CACHED_BYTES
        if method == "GET" and answer.status == 200 and room and changes == self.api.changes():
            self._cache[place] = (body, (answer.media_type or "").encode())
            self._cached_bytes += size
        return answer.status, body, answer.media_type or kind

    async def _write(self, request: Request, handler: Handler, words: tuple[str, ...]) -> Json | Answer:
        await self._roles.until_ready()
        if handler == self.api.register:
            found = await self.api.registered_before(request, words)
            if found is not None:
                return found
        leader = await self._roles.leader()
        if leader is None:
            return await handler(request, words)
        if request.headers.get(FORWARDED):
            raise forwarding_failed("this registry is not the leader any more; try again")
        answer, offsets = await asyncio.to_thread(forward, leader, request)
        await self.api.read_up_to(offsets)
        return answer


def _request(scope: Scope, method: str, headers: dict[str, str], raw_path: bytes) -> Request:
    segments = split_path(raw_path)
    context = "."
    # /contexts/{context}/... is the same path inside a context.
    if len(segments) > 2 and segments[0] == "contexts":
        context = "." + segments[1].strip(":").lstrip(".")
        # Clients join an address that ends here with a path that begins with a slash.
        segments = segments[3:] if segments[2] == "" else segments[2:]
    pairs = split_query(scope["query_string"])
    target = raw_path.decode("ascii", "replace")
    if scope["query_string"]:
        target += "?" + scope["query_string"].decode("ascii", "replace")
    return Request(method, segments, target, dict(pairs), headers, b"", context, None, pairs)


async def _body(receive: Receive) -> bytes:
    """The body. One that is too large is read on without keeping it, so that its sender sees the answer."""
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(_BODY_TIMEOUT_S):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise RegistryError(400, 400, "The connection was closed inside the body.")
            part = message.get("body", b"")
            size += len(part)
            if size <= MAX_BODY_BYTES:
                parts.append(part)
            if not message.get("more_body") or size > _MAX_DRAINED_BYTES:
                break
    if size > MAX_BODY_BYTES:
        raise RegistryError(413, 413, f"The body is larger than {MAX_BODY_BYTES} bytes.")
    return b"".join(parts)


async def _send(
    send: Send, status: int, body: bytes, kind: str, head: bool, more: list[tuple[bytes, bytes]]
) -> None:
    headers = [
        *more,
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="SchemaRegistry"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
