"""What an attacker or an accident sends to a console: huge and deep values, stubborn readers, crooked addresses."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
from urllib.parse import quote, urlsplit

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.console.connections import MAX_CONNECTIONS
from ottla.console.live import MAX_STREAMS

pytestmark = pytest.mark.slow

HUGE_BYTES = 50 << 20
PAGE_BYTES = 4 << 20
"""More than any page of one record may take."""


@pytest.fixture(scope="module")
def console(broker, start_console):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"max.message.bytes": str(HUGE_BYTES + (1 << 20))}
    for made in admin.create_topics(
        [NewTopic("huge", 1, 1, config=settings), NewTopic("deep", 1, 1), NewTopic("bomb", 1, 1)]
    ).values():
        made.result()
    sizes = {"message.max.bytes": HUGE_BYTES + (1 << 20)}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **sizes})
    producer.produce("huge", b'{"a": "' + b"x" * HUGE_BYTES + b'"}', "k")
    for value in ("[" * 200_000, '{"a":' * 100_000 + "1" + "}" * 100_000, b"\xff\xfe" * 1000, "9" * 5000):
        producer.produce("deep", value)
    producer.produce("deep", "a" * 50_000 + "!")
    assert producer.flush(60) == 0
    packing = Producer({"bootstrap.servers": broker.bootstrap, **sizes, "compression.type": "zstd"})
    for value in ("before", b"\0" * HUGE_BYTES, "after"):
        packing.produce("bomb", value)
        assert packing.flush(60) == 0
    return start_console("--bootstrap-server", broker.bootstrap)


def get(console, path, headers=None):
    """(status, headers, body) of a request that a browser would not send."""
    address = urlsplit(console.root)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", address.netloc)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path", ["/t/huge", "/t/huge/0/0", "/t/huge?q=xxxx", "/t/huge?as=json", "/t/huge?as=hex"]
)
def test_a_value_of_50_megabytes_gives_a_small_page(console, path):
    status, _, body = get(console, f"/c/local{path}")
    assert status == 200
    assert len(body) < PAGE_BYTES


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("how", ["auto", "json", "msgpack"])
def test_deep_and_broken_values_are_shown_as_far_as_they_go(console, offset, how):
    status, _, body = get(console, f"/c/local/t/deep/0/{offset}?as={how}")
    assert status == 200
    assert len(body) < PAGE_BYTES


@pytest.mark.parametrize("query", ["", "at=oldest", "filter=offset+%3E%3D+0"])
def test_a_batch_that_unpacks_to_too_much_hides_only_itself(console, query):
    status, _, body = get(console, f"/c/local/t/bomb?{query}")
    assert status == 200
    assert b"before" in body and b"after" in body
    assert b"The records at 0:1 cannot be read" in body
    assert len(body) < PAGE_BYTES


def test_the_page_of_a_record_that_unpacks_to_too_much_says_so(console):
    status, _, body = get(console, "/c/local/t/bomb/0/1")
    assert status == 200
    assert b"The records at 0:1 cannot be read" in body


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
    ],
)
def test_nothing_but_static_files_is_served(console, path):
    status, _, body = get(console, path)
    assert status in (400, 404)
    assert b"import" not in body and b"root:" not in body


@pytest.mark.parametrize(
    "name", ["a\r\nSet-Cookie: taken=1", "a\nX-Taken: 1", "\u202eevil", "a" * 5000, "../x"]
)
@pytest.mark.parametrize("path", ["t/{}", "t/{}/export", "schema?id={}", "group?id={}"])
def test_a_crooked_name_reaches_no_header_and_no_error_page_of_ours(console, path, name):
    status, headers, body = get(console, f"/c/local/{path.format(quote(name, safe=''))}")
    assert status in (200, 302, 303, 400, 404)
    assert not {"set-cookie", "x-taken"} & {each.lower() for each in headers}
    assert b"Traceback" not in body


@pytest.mark.parametrize(
    "text", ['value.matches("^(a+)+$")', "a" * 100_000, "(" * 1000, 'value.x == "' + "\\" * 5000]
)
def test_a_condition_costs_bounded_time(console, text):
    status, _, _ = get(console, f"/c/local/t/deep?filter={quote(text, safe='')[:60_000]}")
    assert status in (200, 400, 414)


def test_ten_thousand_idle_connections_keep_nobody_out(console):
    address = urlsplit(console.root)
    count = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    assert count > 2 * MAX_CONNECTIONS
    with contextlib.ExitStack() as held:
        live = held.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
        live.sendall(
            f"GET /c/local/topics HTTP/1.1\r\nHost: {address.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        assert live.recv(12) == b"HTTP/1.1 200"
        for number in range(count):
            one = held.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
            if number % 3 == 0:
                one.send(b"GET /c/local/topics HTTP/1.1\r\nHost: ")
        status, _, body = get(console, "/c/local/topics")
        assert status == 200 and b"huge" in body
        while b"event: blocks" not in live.recv(1 << 20):
            pass  # it is live as before: who waits for an answer gives way to nobody


def test_readers_of_streams_that_never_read_hold_up_nobody_and_are_bounded(console):
    address = urlsplit(console.root)
    held = []
    try:
        for _ in range(MAX_STREAMS):
            one = socket.create_connection((address.hostname, address.port), timeout=60)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(
                f"GET /c/local/topics HTTP/1.1\r\nHost: {address.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()
            )
            assert one.recv(12) == b"HTTP/1.1 200"
            held.append(one)
        status, _, body = get(console, "/c/local/topics", {"Accept": "text/event-stream"})
        assert (status, b"are live already" in body) == (404, True)
        status, _, body = get(console, "/c/local/topics")
        assert status == 200 and b"huge" in body
    finally:
        for each in held:
            each.close()
