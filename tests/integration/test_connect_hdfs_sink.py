"""The files sink on a real HDFS, through the web address of its name node."""

import json
import urllib.request

import pyarrow.parquet
import pytest

from integration.connect_rest import eventually, running_worker
from integration.java_servers import HDFS, java_server
from ottla import KafkaProducer
from ottla.connect.failures import TaskFailed
from ottla.connect.plugins import Plugins
from ottla.connect.sinks.file_writer import WebHdfsTarget
from ottla.testing.running import running_broker

pytestmark = [pytest.mark.slow, pytest.mark.java]
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture(scope="module")
def port():
    with java_server("Hdfs.java", *HDFS) as running:
        yield running


def web(port, path, what):
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/webhdfs/v1{path}?op={what}&user.name=root"
    ) as answer:
        return answer.read()


def names(port, folder):
    return [
        one["pathSuffix"] for one in json.loads(web(port, folder, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
    ]


def test_files_of_hdfs_hold_each_record_once(port, tmp_path):
    rows = [{"id": number, "name": f"n{number}"} for number in range(40)]
    fields = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
    with running_broker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for row in rows:
                body = {"schema": {"type": "struct", "fields": fields}, "payload": row}
                producer.send("rows", json.dumps(body).encode())
        with running_worker(broker.bootstrap, value_converter=JSON) as rest:
            rest.create(
                "hdfs",
                connector_class="io.confluent.connect.hdfs.HdfsSinkConnector",
                topics="rows",
                hdfs_url=f"webhdfs://root@127.0.0.1:{port}/data",
                format_class="io.confluent.connect.hdfs.parquet.ParquetFormat",
                flush_size="25",
            )
            eventually(lambda: rest.call("GET", "/connectors/hdfs/offsets")[1]["offsets"])
            eventually(
                lambda: (
                    rest.call("GET", "/connectors/hdfs/offsets")[1]["offsets"][0]["offset"]["kafka_offset"]
                    == 40
                )
            )
    folder = "/data/topics/rows/partition=0"
    found = sorted(names(port, folder))
    assert found == ["rows+0+0000000000.parquet", "rows+0+0000000025.parquet"]
    read = []
    for name in found:
        file = tmp_path / name
        file.write_bytes(web(port, f"{folder}/{name}", "OPEN"))
        read += pyarrow.parquet.ParquetFile(file).read().to_pylist()
    assert read == rows


def test_a_file_that_is_written_again_replaces_the_first(port):
    target = WebHdfsTarget(f"webhdfs://root@127.0.0.1:{port}/again")
    for data in (b"one", b"two"):
        target.write("folder/file", data)
    assert names(port, "/again/folder") == ["file"]
    assert web(port, "/again/folder/file", "OPEN") == b"two"


def test_foreign_folders_and_lost_servers_get_a_sentence(port):
    with pytest.raises(TaskFailed, match="cannot be written"):
        WebHdfsTarget(f"webhdfs://nobody@127.0.0.1:{port}/again").write("folder/other", b"x")
    with pytest.raises(TaskFailed, match="names no host"):
        WebHdfsTarget("webhdfs:///folder")
    sink = Plugins().connector("FilesSink")
    for where, good in ((port, True), (1, False)):
        config = {"name": "s", "topics": "t", "store.url": f"webhdfs://root@127.0.0.1:{where}/data"}
        assert [one.good for one in sink(config).check()] == [good]
