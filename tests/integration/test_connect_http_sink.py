"""The HTTP sink: each record reaches a server, a busy server is asked again, refused records are set aside."""

from __future__ import annotations

import contextlib
import http.server
import threading

import pytest

from integration.connect_rest import eventually, running_worker
from ottla import KafkaConsumer, KafkaProducer
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow


class Server(http.server.ThreadingHTTPServer):
    """Answers with the given codes, then with 200, and keeps what it was sent."""

    def __init__(self, codes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.codes = list(codes)
        self.seen = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        code = 400 if "poison" in body else self.server.codes.pop(0) if self.server.codes else 200
        self.server.seen.append((code, body, dict(self.headers)))
        self.send_response(code)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"so.")

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def serving(*codes):
    with Server(codes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(broker.bootstrap, client_id="http", ottla_restart_backoff_ms="50") as found:
        yield found


def send(broker, topic, *values):
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for one in values:
            producer.send(topic, one.encode())


def create(rest, name, server, **keys):
    rest.create(
        name,
        connector_class="io.aiven.kafka.connect.http.HttpSinkConnector",
        topics=name,
        http_url=f"http://127.0.0.1:{server.server_port}/in",
        **keys,
    )


def taken(server):
    return [body for code, body, _ in server.seen if code == 200]


def test_records_are_sent_one_by_one_and_again_to_a_busy_server(rest, broker):
    with serving(200, 503, 429) as server:
        send(broker, "single", "a", "b", "c")
        create(
            rest,
            "single",
            server,
            http_authorization_type="static",
            http_headers_authorization="Bearer not-a-real-secret",
            headers="X-From:ottla",
        )
        eventually(lambda: taken(server)[-1:] == ["c"])
        assert list(dict.fromkeys(taken(server))) == ["a", "b", "c"]
        _, _, headers = server.seen[0]
        assert headers["Authorization"] == "Bearer not-a-real-secret" and headers["X-From"] == "ottla"
        # What is sent twice has the same key.
        keys = {(body, headers["Idempotency-Key"]) for _, body, headers in server.seen}
        assert len(keys) == 3
        rest.call("DELETE", "/connectors/single")


def test_a_batch_is_halved_down_to_the_record_that_the_server_refuses(rest, broker):
    with serving() as server:
        send(broker, "batched", *(f"{number}" for number in range(6)), "poison", "7")
        create(
            rest,
            "batched",
            server,
            batching_enabled="true",
            batch_separator=",",
            batch_prefix="[",
            batch_suffix="]",
            errors_tolerance="all",
            errors_deadletterqueue_topic_name="dead",
            errors_deadletterqueue_topic_replication_factor="1",
        )
        rows = lambda: [one for body in taken(server) for one in body.strip("[]").split(",")]  # noqa: E731
        eventually(lambda: rows() == [str(number) for number in (0, 1, 2, 3, 4, 5, 7)])
        with KafkaConsumer(
            "dead",
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        ) as consumer:
            assert next(iter(consumer)).value == b"poison"
        rest.call("DELETE", "/connectors/batched")


def test_a_refused_login_fails_the_connector_without_its_secret(rest, broker):
    with serving(*[403] * 9) as server:
        send(broker, "login", "a")
        create(
            rest,
            "login",
            server,
            http_authorization_type="static",
            http_headers_authorization="Bearer not-a-real-secret",
        )
        rest.await_states("login", "RUNNING", "FAILED")
        trace = rest.call("GET", "/connectors/login/tasks/0/status")[1]["trace"]
        assert "/in answers 403: so.. Look at the address and the login" in trace and "Bearer" not in trace
        rest.call("DELETE", "/connectors/login")
