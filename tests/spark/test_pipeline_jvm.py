"""What a session changes in Spark's JVM: files without processes, settings without origins, sockets forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.jvm import java_context, jvm_of
from ottla.pipeline.jvm_tuning import _compiled

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
