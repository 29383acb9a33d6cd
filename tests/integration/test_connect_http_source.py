"""The HTTP source: each item of a server's answers once, also when it is given again, and sentences for bad answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from integration.connect_rest import eventually, running_worker
from ottla import KafkaConsumer
from ottla.connect.config.connector import validate_connector
from ottla.connect.plugins import Plugins
from ottla.testing.running import running_broker

CLASS = "com.github.castorm.kafka.connect.http.HttpSourceConnector"


class Feed(ThreadingHTTPServer):
    """Gives at most three items from `since` on; the item `since` itself comes again."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.items = []
        self.answer = None
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/feed"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        assert isinstance(self.server, Feed)
        query = parse_qs(urlsplit(self.path).query)
        self.server.asked.append((query, self.headers.get("Authorization")))
        status, body = self.server.answer or (200, None)
        if body is None:
            since = int(query["since"][0])
            body = json.dumps(
                {"data": {"items": [one for one in self.server.items if one["id"] >= since][:3]}}
            )
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format, *args):
        """Nothing on standard error."""


@pytest.fixture
def feed():
    found = Feed()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


def keys(feed, topic):
    return {
        "connector.class": CLASS,
        "kafka.topic": topic,
        "http.request.url": feed.url,
        "http.request.params": "since=${offset.id}",
        "http.auth.type": "Basic",
        "http.auth.user": "u",
        "http.auth.password": "p",
        "http.response.list.pointer": "/data/items",
        "http.response.record.offset.pointer": "id=/id",
        "http.response.record.key.pointer": "/id",
        "http.offset.initial": "id=0",
        "http.timer.interval.millis": "50",
    }


def records(broker, topic):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1000
    )
    found = [(record.key.decode(), json.loads(record.value)) for record in consumer]
    consumer.close()
    return found


def test_each_item_arrives_once_also_after_a_restart(broker, feed):
    feed.items = [{"id": number, "name": f"n{number}"} for number in range(1, 8)]
    for upto in (7, 10):
        feed.items += [
            {"id": number, "name": f"n{number}"} for number in range(len(feed.items) + 1, upto + 1)
        ]
        with running_worker(broker.bootstrap, client_id="feed") as rest:
            assert rest.call("PUT", "/connectors/feed/config", keys(feed, "feed"))[0] == 201
            eventually(
                lambda upto=upto, rest=rest: (
                    rest.call("GET", "/connectors/feed/offsets")[1]["offsets"]
                    == [{"partition": {}, "offset": {"id": upto}}]
                )
            )
    assert records(broker, "feed") == [(str(one["id"]), one) for one in feed.items]
    assert feed.asked[0] == ({"since": ["0"]}, "Basic dTpw")


def test_an_answer_that_passes_is_asked_again_and_one_that_does_not_fails_with_a_sentence(broker, feed):
    feed.items = [{"id": 1}]
    feed.answer = (503, "busy")
    with running_worker(broker.bootstrap, client_id="bad", ottla_restart_backoff_ms="50") as rest:
        rest.call("PUT", "/connectors/bad/config", keys(feed, "bad"))
        eventually(lambda: rest.states("bad")[1:] == ["RESTARTING"])
        feed.answer = None
        eventually(lambda: rest.call("GET", "/connectors/bad/offsets")[1]["offsets"])
        for answer, sentence in (
            ((200, "<html>"), "something that is not JSON"),
            ((404, "no such feed"), "answers 404: no such feed"),
            ((200, '{"data":{"items":[{"name":"x"}]}}'), "no plain /id, which is its offset id"),
        ):
            feed.answer = answer
            rest.call("POST", "/connectors/bad/restart?includeTasks=true")
            eventually(
                lambda sentence=sentence: (
                    sentence
                    in (rest.call("GET", "/connectors/bad/status")[1]["tasks"] or [{}])[0].get("trace", "")
                )
            )
            assert rest.states("bad")[1:] == ["FAILED"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"http.request.url": "feed.example"}, "begins with http:// or https://"),
        ({"http.request.params": "since=${offset.at}"}, "is no field of http.response.record.offset.pointer"),
        ({"http.offset.initial": ""}, "has no value for the first request"),
        ({"http.response.record.offset.pointer": "/id"}, "is not written as name=value"),
        ({"http.auth.user": ""}, "needs a user"),
        ({"http.request.method": "PUT"}, "http.request.method"),
    ],
)
def test_bad_keys_get_a_sentence(feed, change, sentence):
    found = validate_connector(Plugins(), {"name": "h", **keys(feed, "t"), **change})
    assert sentence in " ".join(found.errors())


def test_validate_asks_the_server(feed):
    feed.items = [{"id": 1}, {"id": 2}]
    source = Plugins().connector(CLASS)({"name": "h", **keys(feed, "t")})
    assert [(one.good, "answers with 2 items" in one.text) for one in source.check()] == [(True, True)]
    feed.answer = (401, "who are you?")
    assert [(one.good, "answers 401" in one.text) for one in source.check()] == [(False, True)]
