"""The node's HTTP server over real sockets: what it answers, what it refuses, and its bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest

from ottla.clock import SystemClock
from ottla.credentials.secret import Secret
from ottla.metrics import http
from ottla.metrics.http import HttpRequest, HttpResponse, HttpServer, Site


def in_loop(test: Callable[..., Coroutine[object, None, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: object, **fixtures: object) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"hello {request.query.get('name', 'nobody')}".encode())


async def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a secret detail")


PAGES = {"/hello": hello, "/broken": broken, "/health/live": hello}


class Scene:
    """A server, and raw exchanges with it."""

    def __init__(self, token: str | None = None) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        site = Site(
            PAGES.get, lambda path: path.startswith("/health/"), None if token is None else Secret(token)
        )
        self.server = HttpServer([self.sock], site, SystemClock())

    async def __aenter__(self) -> Scene:
        await self.server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.stop()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.server.address)

    async def exchange(self, data: bytes) -> str:
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return (await asyncio.wait_for(reader.read(), 10)).decode()
        finally:
            writer.close()


def get(target: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join(
        [f"{method} {target} HTTP/1.1", "Host: h", "Connection: close", *headers, "", ""]
    ).encode()


@in_loop
async def test_a_page_is_answered_with_its_query():
    async with Scene() as scene:
        answer = await scene.exchange(get("/hello?name=Ada&name=Bob"))
    assert answer.startswith("HTTP/1.1 200 ")
    assert answer.endswith("hello Ada")
    assert "X-Content-Type-Options: nosniff" in answer


@in_loop
async def test_head_sends_no_body():
    async with Scene() as scene:
        answer = await scene.exchange(get("/hello", method="HEAD"))
    assert "Content-Length: 12" in answer and answer.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/nowhere"), 404),
        (get("/hello", method="POST"), 405),
        (get("/hello", "Content-Length: 5") + b"12345", 413),
        (get("/hello?" + "&".join(f"a{n}=1" for n in range(50))), 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nX-Endless: " + b"a" * http.MAX_HEAD_BYTES, 431),
    ],
)
@in_loop
async def test_other_requests_are_refused(data, status):
    async with Scene() as scene:
        assert (await scene.exchange(data)).startswith(f"HTTP/1.1 {status} ")


@in_loop
async def test_a_page_that_fails_says_so_without_details(caplog):
    async with Scene() as scene:
        answer = await scene.exchange(get("/broken"))
    assert answer.startswith("HTTP/1.1 500 ") and "secret detail" not in answer
    assert "a secret detail" in caplog.text


@in_loop
async def test_a_token_is_asked_for_except_by_health():
    async with Scene(token="opensesame") as scene:
        assert (await scene.exchange(get("/hello"))).startswith("HTTP/1.1 401 ")
        wrong = await scene.exchange(get("/hello", "Authorization: Bearer nothing"))
        assert wrong.startswith("HTTP/1.1 401 ") and "opensesame" not in wrong
        right = await scene.exchange(get("/hello", "Authorization: Bearer opensesame"))
        assert right.startswith("HTTP/1.1 200 ")
        assert (await scene.exchange(get("/health/live"))).startswith("HTTP/1.1 200 ")


@in_loop
async def test_a_connection_serves_one_request_after_the_other():
    async with Scene() as scene:
        reader, writer = await scene.connect()
        keep = b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"
        writer.write(keep + keep)
        writer.write(get("/hello?name=last"))
        answer = (await asyncio.wait_for(reader.read(), 10)).decode()
        writer.close()
    assert answer.count("HTTP/1.1 200 ") == 3
    assert answer.endswith("hello last")


@in_loop
async def test_more_connections_than_the_bound_are_closed(monkeypatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    async with Scene() as scene:
        kept = [await scene.connect() for _ in range(2)]
        for reader, writer in kept:
            writer.write(b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await scene.connect()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        for _, each in [*kept, (reader, writer)]:
            each.close()


@in_loop
async def test_a_client_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(http, "IDLE_S", 0.01)
    async with Scene() as scene:
        reader, writer = await scene.connect()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        writer.close()
