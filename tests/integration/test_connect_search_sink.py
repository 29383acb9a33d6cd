"""The search sink on OpenSearch and Elasticsearch: documents once, deletes, refused documents, a lost server."""

import json
import urllib.request

import pytest

from integration.connect_rest import eventually, running_worker
from integration.java_servers import ELASTICSEARCH, OPENSEARCH, java_server
from ottla import KafkaConsumer, KafkaProducer
from ottla.connect.config.connector import validate_connector
from ottla.connect.plugins import Plugins
from ottla.testing.running import running_broker

pytestmark = [pytest.mark.slow, pytest.mark.java]
JSON = "org.apache.kafka.connect.json.JsonConverter"
CLASS = "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"


SERVERS = {"opensearch": ("Search.java", OPENSEARCH), "elasticsearch": ("Elastic.java", *ELASTICSEARCH)}


@pytest.fixture(scope="module", params=SERVERS)
def port(request):
    with java_server(*SERVERS[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def broker(port):
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    keys = {"value_converter": JSON, "value_converter_schemas_enable": "false"}
    with running_worker(broker.bootstrap, client_id="search", **keys) as found:
        yield found


def create(rest, name, port, **keys):
    given = {"connector.class": CLASS, "topics": name, "connection.url": f"http://127.0.0.1:{port}"}
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def send(broker, topic, *pairs):
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in pairs:
            body = (
                None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
            )
            producer.send(topic, body, key=key)


def documents(port, index):
    """The documents of an index by their id, as the server has them now."""
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/{index}/_refresh", method="POST")
    ).close()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{index}/_search?size=100&version=true") as answer:
        hits = json.load(answer)["hits"]["hits"]
    return {one["_id"]: (one["_source"], one["_version"]) for one in hits}


def written(rest, name):
    found = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return sum(one["offset"]["kafka_offset"] for one in found)


def test_documents_are_named_by_their_key_and_a_rewind_repeats_nothing(rest, broker, port):
    send(broker, "people", (b"a", {"n": 1}), (b"b", {"n": 2}), (b"a", {"n": 3}), (b"b", None))
    create(rest, "people", port, behavior_on_null_values="DELETE")
    eventually(lambda: written(rest, "people") == 4)
    # The version is the offset: an older record that comes again changes nothing.
    assert documents(port, "people") == {"a": ({"n": 3}, 2)}
    rest.call("PUT", "/connectors/people/stop")
    rest.await_states("people", "STOPPED")
    places = [{"partition": {"kafka_topic": "people", "kafka_partition": 0}, "offset": {"kafka_offset": 0}}]
    assert rest.call("PATCH", "/connectors/people/offsets", {"offsets": places})[0] == 200
    rest.call("PUT", "/connectors/people/resume")
    eventually(lambda: written(rest, "people") == 4)
    assert documents(port, "people") == {"a": ({"n": 3}, 2)}
    rest.call("DELETE", "/connectors/people")


def test_keyless_records_are_named_by_their_place_and_updates_are_merged(rest, broker, port):
    send(broker, "Log", (None, {"n": 1}), (None, {"n": 2}))
    create(rest, "Log", port, key_ignore="true")
    eventually(lambda: written(rest, "Log") == 2)
    assert set(documents(port, "log")) == {"Log+0+0", "Log+0+1"}
    send(broker, "merged", (b"k", {"a": 1}), (b"k", {"b": 2}))
    create(rest, "merged", port, write_method="UPSERT")
    eventually(lambda: written(rest, "merged") == 2)
    assert documents(port, "merged")["k"][0] == {"a": 1, "b": 2}
    for name in ("Log", "merged"):
        rest.call("DELETE", f"/connectors/{name}")


def test_a_refused_document_goes_to_the_dead_letters_and_the_others_are_written(rest, broker, port):
    send(
        broker,
        "mixed",
        (b"a", {"n": 1}),
        (b"b", {"n": "no number"}),
        (None, {"n": 2}),
        (b"d", b"5"),
        (b"e", {"n": 3}),
    )
    dead = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "mixed-dead"}
    create(
        rest, "mixed", port, **dead, errors_deadletterqueue_context_headers_enable="true",
        errors_deadletterqueue_topic_replication_factor="1",
    )  # fmt: skip
    eventually(lambda: written(rest, "mixed") == 5)
    assert set(documents(port, "mixed")) == {"a", "e"}
    consumer = KafkaConsumer(
        "mixed-dead",
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    reasons = {
        record.offset: dict(record.headers)["__connect.errors.exception.message"].decode()
        for record in consumer
    }
    consumer.close()
    assert "mapper_parsing_exception" in " ".join(reasons.values())
    assert "set key.ignore=true" in " ".join(reasons.values())
    assert "is no object with fields" in " ".join(reasons.values())
    assert len(reasons) == 3
    rest.call("DELETE", "/connectors/mixed")


def test_a_lost_server_is_waited_for_and_a_null_value_fails_with_a_sentence(rest, broker, port):
    send(broker, "lost", (b"a", {"n": 1}))
    create(rest, "lost", 1)
    eventually(lambda: rest.states("lost")[1:] == ["RESTARTING"])
    trace = rest.call("GET", "/connectors/lost/status")[1]["tasks"][0]["trace"]
    assert "127.0.0.1:1 cannot be reached or is busy" in trace
    send(broker, "nulls", (b"a", None))
    create(rest, "nulls", port)
    eventually(lambda: rest.states("nulls")[1:] == ["FAILED"])
    trace = rest.call("GET", "/connectors/nulls/status")[1]["tasks"][0]["trace"]
    assert "behavior.on.null.values=DELETE" in trace
    for name in ("lost", "nulls"):
        rest.call("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"connection.url": "localhost:9200"}, "is no address"),
        ({"connection.username": "u"}, "belong together"),
        ({"index.name": "Big"}, "cannot be the name of an index"),
        ({"write.method": "MERGE"}, "write.method"),
    ],
)
def test_bad_keys_get_a_sentence(keys, sentence):
    config = {"name": "s", "connector.class": CLASS, "topics": "t", "connection.url": "http://h:9200", **keys}
    assert sentence in " ".join(validate_connector(Plugins(), config).errors())


def test_validate_names_the_server(port):
    config = {
        "name": "s",
        "connector.class": CLASS,
        "topics": "t",
        "connection.url": f"http://127.0.0.1:{port}",
    }
    sink = Plugins().connector(CLASS)
    (text,) = [one.text for one in sink(config).check()]
    server = text.removeprefix(f"http://127.0.0.1:{port} is ")
    assert server in ("opensearch 2.19.1", "elasticsearch 7.17.29")
    found = sink({**config, "connection.url": "http://127.0.0.1:1"}).check()
    assert [one.good for one in found] == [False]
