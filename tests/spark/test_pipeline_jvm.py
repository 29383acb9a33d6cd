"""What a session changes in the JVM: no processes for files, no origins of settings, sockets forgotten, one daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.jvm import java_context, jvm_of
from ottla.pipeline.jvm_tuning import DAEMON_MODULE, _compiled
from ottla.pipeline.reader_options import FORMAT
from spark.reading import Kafka

pytestmark = pytest.mark.java


def test_local_files_get_their_permissions_from_the_jvm(spark: Any, tmp_path: Path) -> None:
    jvm, hadoop = jvm_of(spark), java_context(spark.sparkContext).hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI.create("file:///"), hadoop)
    assert str(files.getClass().getName()) == "ottla.LocalFiles"
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission
    for mode in (0o640, 0o755, 0o1777):
        path = tmp_path / f"{mode:o}"
        path.mkdir()
        files.setPermission(jvm.org.apache.hadoop.fs.Path(str(path)), permission(f"{mode:o}"))
        assert path.stat().st_mode & 0o7777 == mode
    written = tmp_path / "made" / "file"
    files.create(jvm.org.apache.hadoop.fs.Path(str(written))).close()
    assert written.stat().st_mode & 0o777 == 0o644


def test_settings_of_hadoop_are_broadcast_without_their_origins(spark: Any) -> None:
    hadoop = java_context(spark.sparkContext).hadoopConfiguration()
    assert hadoop.get("io.file.buffer.size") and not hadoop.getPropertySources("io.serializations")
    copied = jvm_of(spark).org.apache.hadoop.conf.Configuration(hadoop)
    assert copied.size() == hadoop.size() and not copied.getPropertySources("io.serializations")


def test_the_jvm_forgets_the_sockets_of_finished_tasks(spark: Any) -> None:
    sockets = _compiled(spark, "ClosedSockets").newInstance()
    sockets.sweep()
    for _ in range(3):
        assert spark.range(10).toArrow().num_rows == 10
    forgotten = 0
    # A socket's file goes a moment after its last bytes.
    while forgotten < 3:
        forgotten += int(sockets.sweep())


def test_workers_that_plan_reads_have_the_daemon_that_prints_no_traces(
    spark: Any, ottla_kafka: Kafka
) -> None:
    options = {"kafka.bootstrap.servers": ottla_kafka.bootstrap, "subscribePattern": "no-such-topic.*"}
    assert spark.read.format(FORMAT).options(**options).load().count() == 0
    commands = [
        path.read_bytes().split(b"\0") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    ]
    planners = [words for words in commands if b"pyspark.sql.worker.plan_data_source_read" in words]
    assert any(DAEMON_MODULE.encode() in words for words in planners)
