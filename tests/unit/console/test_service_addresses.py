"""Services beside a cluster are asked at their addresses only: no answer leads the console elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ottla.admin.node_metrics import read_numbers
from ottla.console.services import Service, ServiceProblem


@contextmanager
def serving(answer):
    """A server that remembers the paths that it was asked for; `answer` writes each response."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ok(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"secret": 1}')


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_not_followed(status):
    with serving(ok) as (inside, asked_inside):

        def redirect(handler):
            handler.send_response(status)
            handler.send_header("Location", f"{inside}/metrics")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with serving(redirect) as (outside, asked):
            with pytest.raises(ServiceProblem, match=f"The schema registry answers {status}"):
                Service.at("schema registry", outside).ask("GET", "/subjects")
            assert read_numbers(1, outside) is None
            assert asked == ["/subjects", "/metrics?partitions=false"]
        assert asked_inside == []


@pytest.mark.parametrize("path", ["@evil.example/", "/../../x", "//evil.example/x", "/a b"])
def test_a_crooked_path_stays_a_path(path):
    with serving(ok) as (url, asked):
        try:
            Service.at("Connect worker", url).ask("GET", f"/connectors/{path}")
        except ServiceProblem:
            assert asked == [], "a path with a space is not sent"
        else:
            assert asked == [f"/connectors/{path}"]


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused_with_a_sentence(address):
    with pytest.raises(Exception, match="must be like http://host:port"):
        Service.at("Connect worker", address)
