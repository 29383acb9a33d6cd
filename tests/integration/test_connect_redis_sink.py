"""The Redis sink: keys are set and deleted once, and what Redis refuses is said."""

import pytest
import redis

from integration.connect_rest import eventually, running_worker
from integration.servers import running_redis
from ottla import KafkaProducer
from ottla.testing.running import running_broker

CLASS = "com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector"


@pytest.fixture(scope="module")
def server():
    with running_redis() as running:
        yield running


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(broker.bootstrap, client_id="redis") as found:
        yield found


def create(rest, name, server, **keys):
    given = {"connector.class": CLASS, "topics": name, "redis.hosts": f"127.0.0.1:{server.port}"}
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def send(broker, topic, *pairs):
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in pairs:
            producer.send(topic, value, key=key)


def test_keys_are_set_and_deleted_with_their_offsets(rest, broker, server):
    send(broker, "pairs", (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None))
    create(rest, "pairs", server, redis_key_prefix="p:")
    with redis.Redis(port=server.port) as client:
        eventually(lambda: client.hget("ottla_connect_offsets:pairs", "pairs-0") == b"0:4")
        assert client.get("p:a") == b"3" and client.get("p:b") is None
        create(rest, "log", server, redis_command="XADD", topics="pairs")
        eventually(lambda: client.xlen("pairs") == 4)
    for name in ("pairs", "log"):
        rest.call("DELETE", f"/connectors/{name}")


def test_a_missing_key_a_refused_command_and_a_cluster_get_a_sentence(rest, broker, server):
    send(broker, "keyless", (None, b"1"))
    create(rest, "keyless", server)
    send(broker, "words", (b"k", b"text"))
    create(rest, "words", server, redis_command="HSET")
    for name, words in (
        ("keyless", "record keyless-0@0 has no key, which names its entry in Redis"),
        ("words", "record words-0@0 has no fields, which HSET needs"),
    ):
        rest.await_states(name, "RUNNING", "FAILED")
        assert words in rest.call("GET", f"/connectors/{name}/tasks/0/status")[1]["trace"]
        rest.call("DELETE", f"/connectors/{name}")
    given = {"connector.class": CLASS, "topics": "t", "redis.hosts": "a:1,b:2"}
    code, answer = rest.call("POST", "/connectors", {"name": "many", "config": given})
    assert code == 400 and "a cluster of Redis has no transaction" in answer["message"]
