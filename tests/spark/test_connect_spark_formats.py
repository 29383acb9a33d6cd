"""Any format of Spark as a source and as a sink of Connect: rows arrive once, in batches and as a stream."""

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration.connect_rest import eventually, running_worker
from ottla.connect.config.connector import validate_connector
from ottla.connect.plugins import Plugins
from ottla.connect.sinks.spark_format import SparkSink, SparkWriter
from ottla.connect.spi import Range, SinkCycle

SOURCE, SINK = "ottla.connect.SparkSource", "ottla.connect.SparkSink"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def orders(path, numbers):
    at = [
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=one)
        for one in numbers
    ]
    table = {"id": list(numbers), "name": [f"n{one}" for one in numbers], "at": at}
    pq.write_table(pa.table(table), path)


def offsets(rest, name):
    return [one["offset"] for one in rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]]


def test_rows_go_from_files_through_topics_into_files_each_once(spark, ottla_kafka, name, tmp_path):
    source, out, lines = tmp_path / "in", tmp_path / "out", tmp_path / "lines"
    source.mkdir()
    lines.mkdir()
    orders(source / "a.parquet", range(5))
    topic, words = name("orders"), name("words")
    keys = {
        "ottla_spark_master": "local[2]",
        "client_id": topic,
        "value_converter": JSON,
        "key_converter": JSON,
    }
    with running_worker(ottla_kafka.bootstrap, **keys) as rest:
        rest.create(
            topic, connector_class=SOURCE, format="parquet", path=str(source), topic=topic, key_columns="id",
            incrementing_column_name="at", poll_interval_ms="100",
        )  # fmt: skip
        given = {
            "connector.class": SINK, "topics": topic, "format": "parquet", "path": str(out), "cycle.folder": "cycle",
            "options.compression": "zstd",
        }  # fmt: skip
        code, answer = rest.call("POST", "/connectors", {"name": f"{topic}-out", "config": given})
        assert code == 201, answer

        def written():
            done = [one for one in out.glob("cycle=*") if (one / "_SUCCESS").exists()]
            parts = [file for one in done for file in one.glob("*.parquet")]
            return sorted(number for file in parts for number in pq.read_table(file).column("id").to_pylist())

        eventually(lambda: written() == list(range(5)), 240)
        orders(source / "b.parquet", range(5, 9))
        eventually(lambda: written() == list(range(9)), 240)
        assert pq.read_table(str(out)).schema.names == ["id", "name", "at", "cycle"]
        assert rest.call("GET", f"/ottla/connectors/{topic}")[1]["spark_jobs"] >= 2
        last = datetime.datetime(2026, 1, 1, 0, 8, tzinfo=datetime.UTC)
        assert offsets(rest, topic) == [{"value": str(int(last.timestamp()) * 1_000_000)}]

        # A stream, stopped and started again: its checkpoint and the topic agree.
        (lines / "1.txt").write_text("a\nb\n")
        rest.create(
            words, connector_class=SOURCE, format="text", path=str(lines), topic=words, mode="stream",
            checkpoint_location=str(tmp_path / "progress"), poll_interval_ms="100",
        )  # fmt: skip
        eventually(lambda: offsets(rest, words) == [{"batch": 0}], 240)
        rest.call("PUT", f"/connectors/{words}/stop")
        rest.await_states(words, "STOPPED")
        body = {"offsets": [{"partition": {"format": "text"}, "offset": {"batch": 0}}]}
        code, answer = rest.call("PATCH", f"/connectors/{words}/offsets", body)
        assert "a stream's progress is in its checkpoint" in answer["message"]
        (lines / "2.txt").write_text("c\n")
        rest.call("PUT", f"/connectors/{words}/resume")
        eventually(lambda: offsets(rest, words) == [{"batch": 1}], 240)

        # What Spark refuses is a sentence.
        rest.create(
            f"{topic}-no", connector_class=SOURCE, format="parquet", path="/none", topic=topic, mode="bulk"
        )
        eventually(lambda: rest.states(f"{topic}-no")[1:] == ["FAILED"], 240)
        trace = rest.call("GET", f"/connectors/{topic}-no/status")[1]["tasks"][0]["trace"]
        assert trace.startswith("Spark does not read parquet") and "/none" in trace.splitlines()[0]
    found = [json.loads(one.value())["payload"] for one in ottla_kafka.read(topic)]
    assert sorted(one["id"] for one in found) == list(range(9))
    assert {json.loads(one.key())["payload"]["id"] for one in ottla_kafka.read(topic)} == set(range(9))
    read = [json.loads(one.value())["payload"]["value"] for one in ottla_kafka.read(words)]
    assert sorted(read) == ["a", "b", "c"]


def test_a_cycle_that_is_repeated_replaces_its_folder(spark, tmp_path):
    sink = SparkSink({"name": "s", "format": "json", "path": str(tmp_path / "${topic}"), "cycle.folder": "c"})
    rows = pa.table({"id": [1, 2]})
    for number in (1, 1, 2):
        writer = sink.writer()
        assert isinstance(writer, SparkWriter)
        writer.session = lambda: spark
        writer._ready = {writer.table_of_topic("t"): rows}
        writer.commit(SinkCycle("s", 0, number, (Range("t", 0, 0, 2),)), [])
    assert spark.read.json(str(tmp_path / "t")).count() == 4


@pytest.mark.parametrize(
    ("kind", "keys", "sentence"),
    [
        (SOURCE, {}, "needs the column that only grows"),
        (SOURCE, {"mode": "stream"}, "needs a folder for its progress"),
        (SOURCE, {"mode": "bulk", "path": "/a", "table": "b"}, "exclude each other"),
        (SINK, {"cycle.folder": "c"}, "only below a path"),
        (SINK, {"cycle.folder": "a=b", "path": "/a"}, "write a plain name"),
    ],
)
def test_bad_keys_get_a_sentence(kind, keys, sentence):
    config = {"name": "s", "connector.class": kind, "format": "parquet", **keys}
    config |= {"topics": "t"} if kind == SINK else {"topic": "t"}
    assert sentence in " ".join(validate_connector(Plugins(), config).errors())


def test_a_worker_without_spark_says_so(ottla_kafka, name):
    with running_worker(ottla_kafka.bootstrap, client_id=name("none")) as rest:
        rest.create("r", connector_class=SOURCE, format="parquet", path="/p", topic="t", mode="bulk")
        eventually(lambda: rest.states("r")[1:] == ["FAILED"])
        trace = rest.call("GET", "/connectors/r/status")[1]["tasks"][0]["trace"]
        assert "SparkSource reads and writes with Spark: start the worker with --master" in trace
