"""Forwarding: a worker that does not lead sends a request on to the leader, over at most two hops."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ottla.connect.failures import ConnectError
from ottla.connect.herder import NotLeader
from ottla.connect.rest.errors import NotJson, error_body, json_body
from ottla.json_types import Json

_TIMEOUT_S: Final = 90.0
_REBALANCING: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
)
_LOOPING: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_NO_BODY: Final = ("DELETE", "POST/restart", "PUT/pause", "PUT/resume", "PUT/stop")

Endpoint = Callable[[Request, Json], Awaitable[Response]]


def forwarding(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that is served by the leader: it gets the request and its JSON body."""

    @functools.wraps(endpoint)
    async def serve(request: Request) -> Response:
        last = request.url.path.rstrip("/").rpartition("/")[2]
        bare = request.method in ("DELETE", "GET") or f"{request.method}/{last}" in _NO_BODY
        try:
            body = None if bare else await json_body(request)
        except NotJson as error:
            if last != "offsets":
                raise
            # Kafka fails at the first token that does not fit, in this request with 500.
            raise ConnectError(f"Cannot deserialize value: {error}") from None
        try:
            return await endpoint(request, body)
        except NotLeader as error:
            return await _forward(request, body, error)

    return serve


async def _forward(request: Request, body: Json, error: NotLeader) -> Response:
    """`forward` is absent at the first hop, true at the second, false at the third, which is one too many."""
    hop = request.query_params.get("forward")
    if hop == "false":
        return error_body(409, _LOOPING)
    if not error.url:
        return error_body(409, _REBALANCING)
    try:
        import httpx
    except ModuleNotFoundError:
        raise ConnectError("forwarding needs httpx: pip install 'ottla[connect]'") from None
    query = dict(request.query_params)
    query["forward"] = "true" if hop is None else "false"
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if "authorization" in request.headers:
        headers["Authorization"] = request.headers["authorization"]
    try:
        verify = request.app.state.worker.forwarding_tls
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=verify) as client:
            answer = await client.request(
                request.method,
                error.url.rstrip("/") + request.url.path,
                params=query,
                content=content,
                headers=headers,
            )
    except httpx.HTTPError as failure:
        return error_body(500, f"IO Error trying to forward REST request: {failure}")
    kept = {name: answer.headers[name] for name in ("location", "content-type") if name in answer.headers}
    return Response(answer.content, answer.status_code, kept)
