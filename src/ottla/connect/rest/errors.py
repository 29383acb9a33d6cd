"""Errors of REST: Kafka's body `{"error_code", "message"}`, and bodies that are refused before they cost memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.connect.failures import AlreadyExists, BadRequest, ConnectError, NotFound
from ottla.connect.herder import Forbidden, NotLeader
from ottla.errors import ApiException
from ottla.json_types import Json

_logger = logging.getLogger(__name__)

MOST_BODY_BYTES: Final = 4 << 20
_MOST_DEPTH: Final = 64
_MOST_DROPPED_BYTES: Final = 64 << 20
_STATUS: Final = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (BadRequest, 400),
    (Forbidden, 403),
    (NotLeader, 409),
)


def error_body(status: int, message: str | None) -> JSONResponse:
    """Kafka's form of an error."""
    return JSONResponse({"error_code": status, "message": message}, status)


async def on_connect_error(request: Request, error: Exception) -> Response:
    """The response to one of our own errors."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return error_body(status, str(error))
    _logger.error("%s %s: %s", request.method, request.url.path, error)
    return error_body(500, str(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """The response to an unknown path or method."""
    assert isinstance(error, HTTPException)
    message = f"HTTP {error.status_code} {error.detail}"
    return error_body(error.status_code, message)


async def on_any_error(request: Request, error: Exception) -> Response:
    """The response to a failure that nobody expected; its text may hold anything, so it is only logged."""
    _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_body(
        500, f"the worker failed to serve this request ({type(error).__name__}): its log says why"
    )


HANDLERS: Final[dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = {
    ConnectError: on_connect_error,
    ApiException: on_connect_error,
    HTTPException: on_http_error,
    Exception: on_any_error,
}


class BodyTooLarge(HTTPException):
    """A body beyond the limit."""

    def __init__(self) -> None:
        super().__init__(413, f"Request Entity Too Large: a body has at most {MOST_BODY_BYTES} bytes")


class NotJson(BadRequest):
    """A body that is not JSON."""


async def json_body(request: Request) -> Json:
    """The JSON of a request; BadRequest if it is none, or too deep."""
    data = bytearray()
    dropped = 0
    async for part in request.stream():
        if len(data) + len(part) > MOST_BODY_BYTES or dropped:
            # What follows is read and dropped, up to a limit: many clients read no answer before they have sent all.
            data.clear()
            dropped += len(part)
            if dropped > _MOST_DROPPED_BYTES:
                raise BodyTooLarge
            continue
        data += part
    if dropped:
        raise BodyTooLarge
    if not data:
        raise BadRequest("the request has no body: it needs a JSON object")
    try:
        found: Json = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the body is not JSON: {error}") from None
    if _depth(found) > _MOST_DEPTH:
        raise BadRequest(f"the body is nested more than {_MOST_DEPTH} levels deep")
    return found


def _depth(value: Json) -> int:
    """How deep lists and objects are nested, without recursion."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        if level > _MOST_DEPTH:
            return level
        if isinstance(one, dict):
            waiting += [(each, level + 1) for each in one.values()]
        elif isinstance(one, list):
            waiting += [(each, level + 1) for each in one]
    return deepest


def text_map(found: Json) -> dict[str, str | None]:
    """A map of texts, as Kafka reads one: numbers and booleans become text."""
    if not isinstance(found, dict):
        raise BadRequest("a configuration is a JSON object with texts")
    config: dict[str, str | None] = {}
    for key, value in found.items():
        if isinstance(value, (dict, list)):
            raise BadRequest(f"the value of {key} is not a text")
        if value is None or isinstance(value, str):
            config[key] = value
        else:
            config[key] = json.dumps(value)
    return config
