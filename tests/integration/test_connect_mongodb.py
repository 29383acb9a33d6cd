"""The MongoDB sink and source, on a server that speaks MongoDB's protocol (a stand-in: MongoDB itself is not here)."""

import json

import pytest

from integration.connect_rest import eventually, running_worker
from integration.java_servers import MONGODB, java_server
from ottla import KafkaConsumer, KafkaProducer
from ottla.connect.config.connector import validate_connector
from ottla.connect.plugins import Plugins
from ottla.testing.running import running_broker

pymongo = pytest.importorskip("pymongo")
pytestmark = [pytest.mark.slow, pytest.mark.java]
SINK = "com.mongodb.kafka.connect.MongoSinkConnector"
SOURCE = "com.mongodb.kafka.connect.MongoSourceConnector"


@pytest.fixture(scope="module")
def uri():
    with java_server("Mongo.java", MONGODB) as port:
        yield f"mongodb://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def shop(uri):
    with pymongo.MongoClient(uri) as client:
        yield client["shop"]


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(broker.bootstrap, client_id="mongo", ottla_restart_backoff_ms="100") as found:
        yield found


def create(rest, name, kind, uri, keys):
    given = {"connector.class": kind, "connection.uri": uri, "database": "shop", **keys}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def send(broker, topic, *pairs):
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in pairs:
            body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, body, key=key)


def written(rest, name):
    found = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return sum(one["offset"]["kafka_offset"] for one in found)


def rewind(rest, name):
    rest.call("PUT", f"/connectors/{name}/stop")
    rest.await_states(name, "STOPPED")
    assert rest.call("DELETE", f"/connectors/{name}/offsets")[0] == 200
    rest.call("PUT", f"/connectors/{name}/resume")


def test_documents_are_replaced_and_deleted_by_key_and_a_repeat_changes_nothing(rest, broker, uri, shop):
    send(broker, "people", (b"a", {"n": 1}), (b"b", {"n": 2}), (b"a", {"n": 3}), (b"b", None))
    keys = {"topics": "people", "document.id.strategy": "FullKeyStrategy", "delete.on.null.values": "true"}
    create(rest, "people", SINK, uri, keys)
    for _ in range(2):
        eventually(lambda: written(rest, "people") == 4)
        assert list(shop["people"].find()) == [{"_id": "a", "n": 3}]
        rewind(rest, "people")
    rest.call("DELETE", "/connectors/people")


def test_records_without_an_id_get_one_of_their_place_and_are_there_once(rest, broker, uri, shop):
    send(broker, "log", (None, {"n": 1}), (None, {"n": 2, "_id": "own"}), (None, {"n": {"$numberLong": "3"}}))
    create(rest, "log", SINK, uri, {"topics": "log", "collection": "lines", "max.batch.size": "2"})
    for _ in range(2):
        eventually(lambda: written(rest, "log") == 3)
        assert sorted(one["n"] for one in shop["lines"].find()) == [1, 2, 3]
        assert shop["lines"].find_one({"_id": "own"})["n"] == 2
        rewind(rest, "log")
    rest.call("DELETE", "/connectors/log")


def test_refused_records_are_dead_letters_and_the_others_are_written(rest, broker, uri, shop):
    shop["mixed"].create_index("n", unique=True)
    send(
        broker, "mixed", (b"a", {"n": 1}), (b"b", {"n": 1}), (b"c", b"words"), (b"d", None), (b"e", {"n": 2})
    )
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "mixed-dead"}
    dead |= {
        "errors.deadletterqueue.context.headers.enable": "true",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    keys = {"topics": "mixed", "document.id.strategy": "com.mongodb.x.FullKeyStrategy", **dead}
    create(rest, "mixed", SINK, uri, keys)
    eventually(lambda: written(rest, "mixed") == 5)
    assert sorted(one["_id"] for one in shop["mixed"].find()) == ["a", "e"]
    consumer = KafkaConsumer(
        "mixed-dead",
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    reasons = [dict(one.headers)["__connect.errors.exception.message"].decode() for one in consumer]
    consumer.close()
    for words in ("refuses the document (11000)", "text that is not JSON", "set delete.on.null.values=true"):
        assert [one for one in reasons if words in one], reasons
    rest.call("DELETE", "/connectors/mixed")


def values(broker, topic, count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = [json.loads(next(consumer).value) for _ in range(count)]
    consumer.close()
    return found


def test_changes_arrive_once_also_after_a_restart(rest, broker, uri, shop):
    shop["orders"].insert_one({"_id": 1, "n": 1})
    keys = {
        "collection": "orders",
        "topic.prefix": "m",
        "startup.mode": "timestamp",
        "startup.mode.timestamp.start.at.operation.time": "1",
    }
    create(rest, "orders", SOURCE, uri, keys)
    eventually(lambda: rest.call("GET", "/connectors/orders/offsets")[1]["offsets"])
    [offset] = rest.call("GET", "/connectors/orders/offsets")[1]["offsets"]
    assert offset["partition"]["ns"] == f"{uri}shop.orders" and "_data" in offset["offset"]["_id"]
    rest.call("PUT", "/connectors/orders/stop")
    rest.await_states("orders", "STOPPED")
    # The stand-in repeats the change of the token itself, which MongoDB does not.
    shop["orders"].delete_one({"_id": 1})
    rest.call("PUT", "/connectors/orders/resume")
    found = values(broker, "m.shop.orders", 2)
    assert found[0]["operationType"] == "insert" and found[0]["fullDocument"] == {"_id": 1, "n": 1}
    rest.call("DELETE", "/connectors/orders")


@pytest.mark.parametrize(
    ("kind", "keys", "sentence"),
    [
        (SINK, {"database": ""}, "write the database"),
        (SINK, {"document.id.strategy": "Oid"}, "there is no Oid"),
        (SINK, {"delete.on.null.values": "true"}, "a null value has only its key"),
        (SINK, {"document.id.strategy": "PartialKeyStrategy"}, "allowlist or blocklist"),
        (SOURCE, {"pipeline": "{"}, "write a list of stages"),
        (SOURCE, {"startup.mode": "copy_existing"}, "copies one collection"),
        (SOURCE, {"startup.mode": "timestamp"}, "seconds since 1970"),
        (SOURCE, {"output.json.formatter": "a.Pretty"}, "there is no Pretty"),
    ],
)
def test_bad_keys_get_a_sentence(kind, keys, sentence):
    config = {"name": "m", "connector.class": kind, "database": "d", **keys}
    config |= {"topics": "t"} if kind == SINK else {}
    assert sentence in " ".join(validate_connector(Plugins(), config).errors())


def test_validate_names_the_server_or_says_that_it_is_away(uri, monkeypatch):
    from ottla.connect import mongo

    monkeypatch.setattr(mongo, "_TIMEOUT_MS", 200)
    config = {"name": "m", "connector.class": SINK, "database": "d", "topics": "t"}
    config["connection.uri"] = "mongodb://user:geheim@127.0.0.1:1/"
    [found] = Plugins().connector(SINK)(config).check()
    assert not found.good and "mongodb://127.0.0.1:1 cannot be reached" in found.text
    assert "geheim" not in found.text
    [found] = Plugins().connector(SINK)({**config, "connection.uri": uri}).check()
    assert found.good and "is MongoDB 4.4.0" in found.text
