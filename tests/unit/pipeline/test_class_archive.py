"""The archive of Spark's classes: which Spark and Java it belongs to, and what a session does with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ottla.pipeline import class_archive
from ottla.pipeline.class_archive import archive_flags, archive_path, make_archive
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.java import Java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A Java and a Spark of this test, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark").mkdir()
    found = Java(tmp_path / "jdk", 17, "the test")
    monkeypatch.setattr(class_archive, "spark_version", lambda: "4.2.0")
    monkeypatch.setattr(class_archive, "find_java", lambda: found)
    return found


def recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Let a script of this text stand for the process that runs Spark."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_sessions_use_an_archive_only_where_there_is_one(java: Java) -> None:
    assert archive_flags(java) == []
    archive_path(java).parent.mkdir(parents=True)
    archive_path(java).touch()
    assert archive_flags(java) == [f"-XX:SharedArchiveFile={archive_path(java)}", "-Xlog:cds*=off"]


def test_each_spark_and_each_java_has_its_own(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = archive_path(java)
    assert archive_path(Java(tmp_path / "another", 21, "the test")) != first
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark-2"))
    assert archive_path(java) != first


def test_a_new_archive_replaces_the_old_and_removes_those_of_vanished_sparks(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording(monkeypatch, tmp_path, 'echo classes > "$3"')
    archive = make_archive()
    assert archive == archive_path(java)
    assert archive.read_text() == "classes\n"
    (tmp_path / "spark").rmdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark-2"))
    (tmp_path / "spark-2").mkdir()
    assert make_archive() != archive
    assert sorted(path.suffix for path in archive.parent.iterdir()) == [".home", ".jsa"]


def test_a_failed_run_is_named_and_leaves_nothing(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording(monkeypatch, tmp_path, "echo 'no space left' >&2; exit 1")
    with pytest.raises(PipelineError, match="no archive of Spark's classes was made: no space left"):
        make_archive()
    assert list(archive_path(java).parent.iterdir()) == []
