"""The two systems under measurement, each a process with its own directory, and what the kernel says of it."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ottla.testing.apache import KAFKA_JVM_FLAGS, ApacheKafka, free_port
from ottla.testing.process import BrokerProcess

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class System(Protocol):
    """A broker that can be started, measured and stopped."""

    name: str
    directory: Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> float:
        """Start it; gives back the seconds from exec to the first answered request."""
        ...

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def wipe(self) -> None: ...


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


def wait_for_answer(port: int, deadline_s: float = 120.0) -> None:
    """Until an ApiVersions request is answered: the moment a client would call the broker up."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
                if connection.recv(4):
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise TimeoutError(f"nothing answers on port {port}")


class Ottla:
    """Ottla as `ottla start` runs it."""

    name = "ottla"

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self._port = free_port()
        self._process = BrokerProcess(
            directory / "data", listen=f"127.0.0.1:{self._port}", settings=dict(settings or {})
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> float:
        self.directory.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        self._process.start(timeout_s=120)
        wait_for_answer(self._port)
        return time.monotonic() - begin

    def stop(self) -> None:
        self._process.stop(120)

    def kill(self) -> None:
        self._process.kill()

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Kafka:
    """Apache Kafka with the flags of its own start script."""

    name = "kafka"

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self._kafka = ApacheKafka(directory, settings, KAFKA_JVM_FLAGS)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def start(self) -> float:
        if not self._kafka.data.exists():
            self._kafka.format()
        begin = time.monotonic()
        self._kafka.start()
        wait_for_answer(self._kafka.port)
        return time.monotonic() - begin

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
