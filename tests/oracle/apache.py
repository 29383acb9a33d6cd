"""Apache Kafka 4.3.1 beside Ottla: its tools, and its broker as a peer, both from Maven by their coordinates."""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from oracle.maven import classpath

VERSION = "4.3.1"
_LEAN_JVM = ["-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None,
    reason="needs a JVM and Maven to run Apache Kafka's own programs",
)


@functools.cache
def kafka_classpath() -> str:
    """Apache Kafka's broker and all of its tools."""
    return classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")


def java_command(main_class: str, *arguments: object) -> list[str]:
    return ["java", *_LEAN_JVM, "-cp", kafka_classpath(), main_class, *map(str, arguments)]


def run_java(
    main_class: str, *arguments: object, stdin: str | None = None, timeout_s: float = 90, check: bool = True
) -> str:
    """Run one of Kafka's programs to its end; what it printed to both streams comes back."""
    done = subprocess.run(
        java_command(main_class, *arguments),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    if check:
        assert done.returncode == 0, f"{main_class} {arguments} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def dump_log(*files: Path, cluster_metadata: bool = False, index_check: bool = False) -> str:
    """What Kafka's DumpLogSegments says of files; a complaint of it about any of them fails the test."""
    options: list[object] = ["--files", ",".join(map(str, files))]
    if index_check:
        options.append("--index-sanity-check")
    else:
        options.append("--deep-iteration")
    if cluster_metadata:
        options.append("--cluster-metadata-decoder")
    said = run_java("org.apache.kafka.tools.DumpLogSegments", *options)
    for complaint in ("Exception", "Mismatches", "isvalid: false", "Could not", "Found invalid", "failed"):
        assert complaint not in said, said
    return said


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ApacheKafka:
    """A single Apache Kafka node, broker and controller, on a directory of the caller's."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        controller = free_port()
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(settings or {}),
        }
        self.properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "server.out"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return self.properties

    def format(self, cluster_id: str = "MkU3OEVBNTcwNTJENDM2Qg", *options: str) -> None:
        self.write_properties()
        run_java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", self.properties, *options)

    def start(self, timeout_s: float = 60) -> ApacheKafka:
        self.write_properties()
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", self.properties), stdout=out, stderr=out
            )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"Apache Kafka ended:\n{self._log.read_text()[-4000:]}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            select_wait(0.1)
        raise AssertionError(f"Apache Kafka did not start:\n{self._log.read_text()[-4000:]}")

    def stop(self, timeout_s: float = 60) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout_s)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def select_wait(seconds: float) -> None:
    """Give another process a moment: the only thing it tells us about itself is that its port opens."""
    time.sleep(seconds)
