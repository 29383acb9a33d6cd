"""What a worker does with bad records, with failures that pass, with missing topics and with plugins of a folder."""

import json

import pytest

from integration.connect_rest import eventually, running_worker
from ottla import KafkaAdminClient, KafkaConsumer, KafkaProducer
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow

JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker") as running:
        yield running


def records(broker, topic):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1500,
        isolation_level="read_committed",
    )
    found = list(consumer)
    consumer.close()
    return found


def send(broker, topic, *values):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for value in values:
        producer.send(topic, value)
    producer.flush()
    producer.close()


def test_poison_records_are_fatal_or_dead_letters_by_tolerance(broker, tmp_path):
    out = tmp_path / "out.txt"
    config = {
        "connector_class": "FileStreamSink",
        "file": str(out),
        "topics": "poisoned",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    with running_worker(broker.bootstrap) as rest:
        send(broker, "poisoned", b'{"a":1}', b"{poison", b'{"a":2}')
        rest.create("strict", **config)
        rest.await_states("strict", "RUNNING", "FAILED")
        trace = rest.call("GET", "/connectors/strict/status")[1]["tasks"][0]["trace"]
        assert trace.startswith(
            "Tolerance exceeded in error handler: poisoned-0 offset 1 failed in VALUE_CONVERTER"
        )
        assert not out.exists() or out.read_text() == ""
        rest.call("DELETE", "/connectors/strict")
        rest.create(
            "lenient",
            **config,
            errors_tolerance="all",
            **{
                "errors.deadletterqueue.topic.name": "dead",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )
        eventually(lambda: out.exists() and out.read_text() == "{a=1}\n{a=2}\n")
        (letter,) = eventually(lambda: records(broker, "dead"))
        headers = {key: value.decode() for key, value in letter.headers}
        assert letter.value == b"{poison"
        assert headers["__connect.errors.topic"] == "poisoned" and headers["__connect.errors.offset"] == "1"
        assert headers["__connect.errors.stage"] == "VALUE_CONVERTER"
        assert headers["__connect.errors.class.name"] == JSON
        assert headers["__connect.errors.exception.class.name"].endswith("DataException")
        assert rest.call("GET", "/ottla/connectors/lenient")[1]["skipped_records"] == 1


def test_a_connector_goes_on_by_itself_after_the_broker_was_away(broker, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    with running_worker(broker.bootstrap, ottla_restart_backoff_ms="100") as rest:
        rest.create("patient", connector_class="FileStreamSource", file=str(source), topic="patient")
        eventually(lambda: [one.value for one in records(broker, "patient")] == [b"a"])
        broker.kill()
        with source.open("a") as file:
            file.write("b\n")
        broker.start()
        eventually(lambda: [one.value for one in records(broker, "patient")] == [b"a", b"b"], 60)
        rest.await_states("patient", "RUNNING", "RUNNING")


def test_missing_topics_are_made_by_their_group(broker, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    groups = {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.groups": "brief",
        "topic.creation.brief.include": "brief-.*",
        "topic.creation.brief.partitions": "2",
        "topic.creation.brief.retention.ms": "3600000",
    }
    with running_worker(broker.bootstrap) as rest:
        for topic in ("plain-lines", "brief-lines"):
            rest.create(topic, connector_class="FileStreamSource", file=str(source), topic=topic, **groups)
            # A consumer would make the topic itself.
            eventually(lambda topic=topic: rest.call("GET", f"/connectors/{topic}/offsets")[1]["offsets"])
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    described = {one["name"]: one for one in admin.describe_topics(["plain-lines", "brief-lines"])}
    admin.close()
    assert {name: len(one["partitions"]) for name, one in described.items()} == {
        "plain-lines": 3,
        "brief-lines": 2,
    }


def test_a_connector_of_a_folder_is_a_plugin(broker, tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "counter.py").write_text(
        """
from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import INT64
from ottla.connect.spi import SourceConnector, SourceReader, partition_key

KEY = partition_key({"counter": "one"})

class Reader(SourceReader):
    def __init__(self, topic):
        self.topic = topic
    def latest_offsets(self, start, limit):
        return {KEY: {"count": 3}}
    def splits(self, start, end, max_splits):
        return [(start.get(KEY, {"count": 0})["count"], end[KEY]["count"])]
    def read(self, split):
        for number in range(*split):
            yield SourceRecord(self.topic, number, INT64)

class Counter(SourceConnector):
    @classmethod
    def config_def(cls):
        return ConfigDef([ConfigKey("topic")])
    def reader(self):
        return Reader(self.values["topic"])
"""
    )
    with running_worker(broker.bootstrap, plugin_path=str(folder)) as rest:
        assert {"class": "Counter", "type": "source"} in rest.call("GET", "/connector-plugins")[1]
        rest.create("counted", connector_class="Counter", topic="counted", value_converter=JSON)
        found = eventually(lambda: records(broker, "counted"))
        assert [json.loads(one.value)["payload"] for one in found] == [0, 1, 2]
