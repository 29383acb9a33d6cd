"""Every REST answer beside that of a Java worker, field by field; and takeover from Java's workers and back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from chaos.connect_workers import LONG, broker_process
from integration.connect_rest import Rest, eventually
from oracle.connect_worker_java import cluster_keys, java_worker
from oracle.kafka_tools import needs_java
from ottla import KafkaConsumer
from ottla.connect.config.worker import worker_config
from ottla.connect.worker import Worker
from ottla.testing.running import running_broker

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

BROKERS = ["ottla", "apache"] if LONG else ["ottla"]
_FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def broker(request, tmp_path_factory):
    """Ottla, and Apache Kafka for the long form of the tests that move."""
    if getattr(request, "param", "ottla") == "apache":
        with broker_process(tmp_path_factory.mktemp("apache"), apache=True) as running:
            yield running
        return
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def pair(broker, tmp_path_factory):
    """A Java worker and one of ours, each a cluster of its own."""
    keys = cluster_keys(broker.bootstrap, "ours")
    worker = Worker(worker_config({**keys, "listeners": "http://127.0.0.1:0"}))
    worker.start()
    try:
        with java_worker(tmp_path_factory.mktemp("java"), cluster_keys(broker.bootstrap, "java")) as url:
            eventually(lambda: worker.health()[0] == "healthy")
            yield Rest(url), Rest(f"http://127.0.0.1:{worker.port}")
    finally:
        worker.stop()


def normal(value: Any) -> Any:
    """Without what must differ: addresses, texts of documentation, the order of lists of keys."""
    if isinstance(value, dict):
        return {
            key: normal(one)
            for key, one in value.items()
            if key not in ("worker_id", "documentation", "commit", "trace")
        }
    if isinstance(value, list):
        return [normal(one) for one in value]
    return value


def both(pair, method: str, path: str, body: Any = None) -> tuple[Any, Any]:
    java, ours = (one.call(method, path, body) for one in pair)
    return java, ours


def same(pair, method: str, path: str, body: Any = None, *, message: bool = True) -> Any:
    (java_code, java), (code, ours) = both(pair, method, path, body)
    assert code == java_code, (java, ours)
    if not message and isinstance(java, dict) and "message" in java:
        java, ours = {**java, "message": ""}, {**ours, "message": ""}
    assert normal(ours) == normal(java)
    return ours


def settled(pair, name: str, *states: str) -> None:
    for one in pair:
        one.await_states(name, *states)


def test_a_connector_s_life_has_the_same_answers(pair, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\nb\n")
    config = {"connector.class": _FILE, "file": str(source), "topic": "rest-lines", "tasks.max": "1"}
    same(pair, "GET", "/")
    same(pair, "GET", "/connectors")
    same(pair, "POST", "/connectors", {"name": " rest ", "config": config})
    settled(pair, "rest", "RUNNING", "RUNNING")
    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status"):
        same(pair, "GET", f"/connectors/rest{path}")
    for one in pair:
        eventually(lambda one=one: one.call("GET", "/connectors/rest/offsets")[1]["offsets"])
        eventually(lambda one=one: one.call("GET", "/connectors/rest/topics")[1]["rest"]["topics"])
    same(pair, "GET", "/connectors/rest/offsets")
    same(pair, "GET", "/connectors/rest/topics")
    same(pair, "GET", "/connectors?expand=status&expand=info")
    same(pair, "POST", "/connectors", {"name": "rest", "config": config})
    same(pair, "PUT", "/connectors/rest/config", {**config, "batch.size": "10"})
    same(pair, "PATCH", "/connectors/rest/config", {"batch.size": None})
    settled(pair, "rest", "RUNNING", "RUNNING")
    same(pair, "PUT", "/connectors/rest/pause")
    settled(pair, "rest", "PAUSED", "PAUSED")
    same(pair, "GET", "/connectors/rest/status")
    same(pair, "PUT", "/connectors/rest/resume")
    settled(pair, "rest", "RUNNING", "RUNNING")
    same(pair, "POST", "/connectors/rest/restart")
    settled(pair, "rest", "RUNNING", "RUNNING")
    same(pair, "POST", "/connectors/rest/restart?includeTasks=true&onlyFailed=true")
    same(pair, "PATCH", "/connectors/rest/offsets", {"offsets": []})
    same(pair, "DELETE", "/connectors/rest/offsets")
    same(pair, "PUT", "/connectors/rest/stop")
    settled(pair, "rest", "STOPPED")
    for path in ("/status", "/tasks", ""):
        same(pair, "GET", f"/connectors/rest{path}")
    for offset in ({"position": "x"}, {"position": -1}, {"nothing": 1}):
        body = {"offsets": [{"partition": {"filename": str(source)}, "offset": offset}]}
        (java_code, java), (code, ours) = both(pair, "PATCH", "/connectors/rest/offsets", body)
        assert (code, ours["message"]) == (java_code, java["message"])
    body = {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": 2}}]}
    same(pair, "PATCH", "/connectors/rest/offsets", body)
    same(pair, "GET", "/connectors/rest/offsets")
    same(pair, "DELETE", "/connectors/rest/offsets")
    same(pair, "GET", "/connectors/rest/offsets")
    same(pair, "PUT", "/connectors/rest/topics/reset")
    same(pair, "DELETE", "/connectors/rest")
    same(pair, "GET", "/connectors/rest")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/config"),
        ("GET", "/status"),
        ("GET", "/tasks"),
        ("GET", "/tasks/0/status"),
        ("GET", "/offsets"),
        ("PUT", "/pause"),
        ("PUT", "/resume"),
        ("PUT", "/stop"),
        ("POST", "/restart"),
        ("POST", "/restart?includeTasks=true"),
        ("POST", "/tasks/0/restart"),
        ("DELETE", ""),
        ("DELETE", "/offsets"),
    ],
)
def test_unknown_connectors_get_the_same_words(pair, method, path):
    same(pair, method, f"/connectors/nothing{path}")


def infos(answer: Any) -> dict[str, Any]:
    return {one["value"]["name"]: one for one in answer["configs"]}


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": _FILE},
        {"connector.class": _FILE, "topic": "t", "tasks.max": "x", "name": "a"},
        {"connector.class": _FILE, "topic": "", "tasks.max": "0", "name": ""},
        {
            "connector.class": _FILE,
            "topic": "t",
            "name": "a",
            "errors.tolerance": "some",
            "config.action.reload": "x",
        },
        {"connector.class": "FileStreamSink", "name": "a"},
        {"connector.class": "FileStreamSink", "name": "a", "topics": "x", "topics.regex": "y"},
        {
            "connector.class": "FileStreamSink",
            "name": "a",
            "topics": "x",
            "errors.deadletterqueue.topic.name": "x",
        },
    ],
)
def test_validation_finds_the_same_errors(pair, config):
    name = config["connector.class"].rpartition(".")[2]
    (java_code, java), (code, ours) = both(pair, "PUT", f"/connector-plugins/{name}/config/validate", config)
    assert code == java_code == 200
    java_infos, our_infos = infos(java), infos(ours)
    assert sorted(our_infos) == sorted(java_infos)
    for key, one in java_infos.items():
        assert our_infos[key]["value"]["errors"] == one["value"]["errors"], key
        assert our_infos[key]["value"]["value"] == one["value"]["value"], key
        shown, expected = dict(our_infos[key]["definition"]), dict(one["definition"])
        for volatile in ("documentation",):
            shown.pop(volatile), expected.pop(volatile)
        assert shown == expected, key
    assert ours["error_count"] == java["error_count"]
    assert ours["groups"] == java["groups"]


def test_an_invalid_connector_is_refused_with_kafka_s_text(pair):
    same(pair, "POST", "/connectors", {"name": "bad", "config": {"connector.class": _FILE, "tasks.max": "x"}})
    same(pair, "POST", "/connectors", {"name": "bad", "config": {"connector.class": _FILE, "name": "other"}})


def values(broker, topic):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2000,
        isolation_level="read_committed",
    )
    found = [record.value.decode() for record in consumer]
    consumer.close()
    return found


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_cluster_moves_from_java_to_ours_and_back_while_a_file_grows(broker, tmp_path):
    source = tmp_path / "in.txt"
    source.touch()
    keys = cluster_keys(broker.bootstrap, "moving")
    ended = threading.Event()
    lines = 0

    def grow() -> None:
        nonlocal lines
        with source.open("a", buffering=1) as file:
            while not ended.wait(0.005):
                file.write(f"line {lines}\n")
                lines += 1

    def passed(rest: Rest, size: int) -> bool:
        code, answer = rest.call("GET", "/connectors/moving/offsets")
        return code == 200 and any(one["offset"]["position"] >= size for one in answer["offsets"])

    def carried_on(rest: Rest) -> None:
        """The connector has read what was there when this worker came, and some more."""
        size = source.stat().st_size + 200
        eventually(lambda: passed(rest, size), 60)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with java_worker(tmp_path, keys) as url:
            rest = Rest(url)
            rest.create("moving", connector_class=_FILE, file=str(source), topic="moving-lines")
            carried_on(rest)
        worker = Worker(worker_config({**keys, "listeners": "http://127.0.0.1:0"}))
        worker.start()
        try:
            rest = Rest(f"http://127.0.0.1:{worker.port}")
            carried_on(rest)
            rest.await_states("moving", "RUNNING", "RUNNING")
        finally:
            worker.stop()
        with java_worker(tmp_path, keys) as url:
            rest = Rest(url)
            carried_on(rest)
            rest.await_states("moving", "RUNNING", "RUNNING")
            ended.set()
            writer.join()
            eventually(lambda: passed(rest, source.stat().st_size), 60)
    finally:
        ended.set()
        writer.join()
    assert values(broker, "moving-lines") == [f"line {number}" for number in range(lines)]
