"""Large cycles run as Spark jobs, and write what small ones write."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import psycopg2
from pyspark import cloudpickle

from integration.connect_rest import eventually, running_worker
from integration.servers import PASSWORD, USER, running_postgres
from ottla.connect.sinks import files, jdbc
from ottla.connect.sinks.file_writer import FilesWriter
from ottla.connect.sinks.jdbc_writer import JdbcWriter


def test_a_large_file_goes_through_spark_and_equals_the_resident_run(spark, ottla_kafka, name, tmp_path):
    source = tmp_path / "in.txt"
    lines = [f"line {number} ".encode() + b"x" * 80 for number in range(30_000)]
    source.write_bytes(b"\n".join(lines) + b"\n")
    bootstrap = ottla_kafka.bootstrap
    for master, topic in (("none", name("resident")), ("local[2]", name("job"))):
        keys = {"ottla_spark_master": master, "client_id": topic, "ottla_inline_max_bytes": "100000"}
        with running_worker(bootstrap, **keys) as rest:
            rest.create(topic, connector_class="FileStreamSource", file=str(source), topic=topic)
            size = source.stat().st_size
            eventually(
                lambda rest=rest, topic=topic, size=size: (
                    [
                        one["offset"]["position"]
                        for one in rest.call("GET", f"/connectors/{topic}/offsets")[1]["offsets"]
                    ]
                    == [size]
                ),
                120,
            )
            jobs = rest.call("GET", f"/ottla/connectors/{topic}")[1]["spark_jobs"]
            assert (jobs > 0) == (master != "none")
        assert [one.value() for one in ottla_kafka.read(topic)] == lines


class KilledOnce(FilesWriter):
    """Its first task dies when its files are there and nobody knows of them yet."""

    flag: str

    def write_columns(self, cycle, found, refuse):
        number = super().write_columns(cycle, found, refuse)
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
        return number


def test_a_files_sink_writes_a_backlog_in_jobs_and_a_killed_task_repeats_nothing(
    spark, ottla_kafka, name, tmp_path, monkeypatch
):
    topic = ottla_kafka.make(name("backlog"), partitions=3)
    sent = {(number % 3, number) for number in range(9_000)}
    for partition in range(3):
        rows = [{"id": number, "pad": "x" * 60} for at, number in sorted(sent) if at == partition]
        ottla_kafka.fill(topic, [(None, json.dumps(row)) for row in rows], partition)
    monkeypatch.setattr(KilledOnce, "flag", str(tmp_path / "killed"), raising=False)
    monkeypatch.setattr(files, "FilesWriter", KilledOnce)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    keys = {"ottla_spark_master": "local[2]", "client_id": topic, "ottla_inline_max_bytes": "100000"}
    folder = tmp_path / "out"
    with running_worker(ottla_kafka.bootstrap, **keys, ottla_restart_backoff_ms="100") as rest:
        rest.create(
            topic,
            connector_class="FilesSink",
            topics=topic,
            store_url=str(folder),
            format_class="json",
            value_converter="org.apache.kafka.connect.json.JsonConverter",
            value_converter_schemas_enable="false",
        )
        eventually(lambda: _ends(rest, topic) == {0: 3000, 1: 3000, 2: 3000}, 180)
        assert rest.call("GET", f"/ottla/connectors/{topic}")[1]["spark_jobs"] > 0
    assert (tmp_path / "killed").exists()
    written = [
        (int(path.name.split("+")[1]), json.loads(line)["id"])
        for path in Path(folder).rglob("*+*.json")
        for line in path.read_text().splitlines()
    ]
    assert len(written) == len(sent) and set(written) == sent


class KilledRows(JdbcWriter):
    """Its first task dies when its rows are committed and nobody knows of them yet."""

    flag: str

    def write_range(self, cycle, part, records, refuse):
        message = super().write_range(cycle, part, records, refuse)
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return message
        os.kill(os.getpid(), signal.SIGKILL)
        return message


def test_a_jdbc_sink_writes_a_backlog_in_jobs_and_a_killed_task_repeats_nothing(
    spark, ottla_kafka, name, tmp_path, monkeypatch
):
    """Rows are only inserted, and the table has no key: one that came twice would be there twice."""
    topic = ottla_kafka.make(name("rows"), partitions=3)
    fields = [{"field": name, "type": "int32"} for name in ("part", "id")]
    schema = {"type": "struct", "fields": fields}
    for part in range(3):
        rows = [{"schema": schema, "payload": {"part": part, "id": number}} for number in range(2_000)]
        ottla_kafka.fill(topic, [(None, json.dumps(row)) for row in rows], part)
    monkeypatch.setattr(KilledRows, "flag", str(tmp_path / "killed"), raising=False)
    monkeypatch.setattr(jdbc, "JdbcWriter", KilledRows)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    keys = {"ottla_spark_master": "local[2]", "client_id": topic, "ottla_inline_max_bytes": "100000"}
    with (
        running_postgres() as server,
        running_worker(ottla_kafka.bootstrap, **keys, ottla_restart_backoff_ms="100") as rest,
    ):
        rest.create(
            topic,
            connector_class="io.confluent.connect.jdbc.JdbcSinkConnector",
            topics=topic,
            connection_url=server.jdbc("postgresql", "shop"),
            connection_user=USER,
            connection_password=PASSWORD,
            table_name_format="backlog",
            auto_create="true",
            value_converter="org.apache.kafka.connect.json.JsonConverter",
        )
        eventually(lambda: _ends(rest, topic) == {0: 2000, 1: 2000, 2: 2000}, 180)
        assert rest.call("GET", f"/ottla/connectors/{topic}")[1]["spark_jobs"] > 0
        login = {"host": "127.0.0.1", "port": server.port, "user": USER, "dbname": "shop"}
        with contextlib.closing(psycopg2.connect(**login)) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "SELECT part, count(*), count(DISTINCT id) FROM backlog GROUP BY part ORDER BY part"
            )
            assert cursor.fetchall() == [(0, 2000, 2000), (1, 2000, 2000), (2, 2000, 2000)]
        rest.call("DELETE", f"/connectors/{topic}")
    assert (tmp_path / "killed").exists()


def _ends(rest, topic):
    found = rest.call("GET", f"/connectors/{topic}/offsets")[1]["offsets"]
    return {one["partition"]["kafka_partition"]: one["offset"]["kafka_offset"] for one in found}
