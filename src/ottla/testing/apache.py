"""Apache Kafka 4.3.1 for comparison: its tools and its broker, resolved by Maven."""

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

from ottla.testing.class_archive import archive_flags
from ottla.testing.maven import classpath
from ottla.testing.ports import free_ports

VERSION = "4.3.1"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

ARCHIVE = f"kafka-{VERSION}"

LEAN_JVM_FLAGS = [
    *("-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
    *archive_flags(ARCHIVE),
]
"""For programs that run a second or two: start-up dominates their run time."""

KAFKA_JVM_FLAGS = [
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
]
"""The JVM flags of Kafka's own start script."""


def java_is_here() -> bool:
    return shutil.which("java") is not None and shutil.which("mvn") is not None


@functools.cache
def kafka_classpath() -> str:
    """Apache Kafka's broker and all of its tools."""
    return classpath(f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")


def java_command(main_class: str, *arguments: object, flags: list[str] = LEAN_JVM_FLAGS) -> list[str]:
    return ["java", *flags, "-cp", kafka_classpath(), main_class, *map(str, arguments)]


def run_java(
    main_class: str, *arguments: object, stdin: str | None = None, timeout_s: float = 90, check: bool = True
) -> str:
    """Run one of Kafka's programs to its end, and return its output of both streams."""
    done = subprocess.run(
        java_command(main_class, *arguments),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{main_class} {arguments} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def free_port() -> int:
    return free_ports(1)[0]


class ApacheKafka:
    """A single Apache Kafka node, broker and controller, in the given directory."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        flags: list[str] = LEAN_JVM_FLAGS,
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.flags = flags
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

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def format(self, *options: str) -> None:
        self._write_properties()
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.properties, *options)

    def start(self, timeout_s: float = 120) -> ApacheKafka:
        """Start the node and wait until its port opens: Kafka has no other sign that it is ready."""
        self.launch()
        return self.wait(timeout_s)

    def launch(self) -> None:
        """Start the node without waiting: in a cluster its port opens only when others run."""
        self._write_properties()
        with self._log.open("ab") as out:
            command = java_command("kafka.Kafka", self.properties, flags=self.flags)
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    def wait(self, timeout_s: float = 120) -> ApacheKafka:
        """Wait until the port opens."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"Apache Kafka ended:\n{self._log.read_text()[-4000:]}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.02)
        raise AssertionError(f"Apache Kafka did not start:\n{self._log.read_text()[-4000:]}")

    def _write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def terminate(self) -> None:
        """Ask the node to stop, without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = 120) -> None:
        self.terminate()
        if self._process is not None:
            self._process.wait(timeout_s)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
