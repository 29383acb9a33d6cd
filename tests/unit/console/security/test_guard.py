"""The outer wall: foreign hosts, foreign origins, long bodies, and the headers of every answer."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ottla.console.cli import check_address
from ottla.console.security.headers import CONTENT_SECURITY_POLICY, Guard, host_name
from ottla.console.settings import ConsoleSettings, Target
from ottla.errors import ApiException

TARGETS = (Target("local", "localhost:9092"),)


class Client:
    """Requests to an application without a socket."""

    def __init__(self, app):
        self._app = app

    def request(self, method, path, **options):
        async def ask():
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9021") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)


def client(**options):
    async def endpoint(request):
        return PlainTextResponse("reached")

    settings = ConsoleSettings(TARGETS, **options)
    app = Starlette(
        routes=[Route("/", endpoint, methods=["GET", "POST"])],
        middleware=[Middleware(Guard, settings=settings)],
    )
    return Client(app)


def test_every_answer_has_the_headers():
    answer = client().get("/")
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io:9021"])
def test_a_rebound_name_is_refused(host):
    answer = client().get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "reached" not in answer.text


@pytest.mark.parametrize("host", ["localhost:9021", "127.0.0.1:9021", "[::1]:9021", "LOCALHOST"])
def test_our_own_names_pass(host):
    assert client().get("/", headers={"host": host}).text == "reached"


def test_a_name_that_was_allowed_passes():
    assert client(hosts=("kafka.example",)).get("/", headers={"host": "kafka.example"}).text == "reached"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"content-length": "99999999999"},
    ],
)
def test_changes_from_elsewhere_are_refused(headers):
    assert client().post("/", headers=headers, content=b"x").status_code == 403


def test_changes_from_our_own_pages_pass():
    for headers in ({"sec-fetch-site": "same-origin"}, {"origin": "http://localhost:9021"}):
        assert client().post("/", headers=headers, content=b"x").text == "reached"


def test_another_address_needs_a_decision():
    with pytest.raises(ApiException, match="--users FILE"):
        check_address(ConsoleSettings(TARGETS, host="0.0.0.0"))
    check_address(ConsoleSettings(TARGETS, host="0.0.0.0", open_to_all=True))
    check_address(ConsoleSettings(TARGETS))


def test_the_host_of_a_header():
    assert [host_name(each) for each in ("A:1", "[::1]:9021", "b")] == ["a", "::1", "b"]
