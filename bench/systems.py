"""The two systems under measurement: each is a process with its own directory and the kernel's figures for it."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.sheet import KAFKA, OTTLA
from bench.stalls import HOLDING, WATCHDOG
from ottla.testing.apache import KAFKA_JVM_FLAGS, ApacheKafka, free_port
from ottla.testing.process import BrokerProcess

_PAGE = os.sysconf("SC_PAGE_SIZE")

HELD_SETTINGS = {
    # While one system is measured, a signal pauses the other one for longer than a session timeout.
    "broker.session.timeout.ms": 3_600_000,
}
"""For systems that take turns. Not for killed ones: the registration of a dead broker would stay too long."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    # Compaction begins when a row asks for it, not up to fifteen seconds later.
    "log.cleaner.backoff.ms": 500,
}
"""The same for both systems; all other settings have their defaults."""


class System(Protocol):
    """A broker that can be started, measured, paused and stopped."""

    name: str
    directory: Path
    data: Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> float:
        """Start the broker. Returns the seconds from exec to the first response."""
        ...

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def wipe(self) -> None: ...


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, by its clock: finer than the ticks of /proc."""
    return time.clock_gettime(~pid << 3 | 2)


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


def wait_for_answer(port: int, deadline_s: float = 120.0) -> None:
    """Wait until the broker responds to ApiVersions."""
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
    raise TimeoutError(f"no response on port {port}")


def _listed(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


class Ottla:
    """Ottla as `ottla start` runs it, with a fine watchdog of its event loop."""

    name = OTTLA

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        plain: bool = False,
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        """`plain`: default settings, and no watchdog. `listeners`: names and ports besides the PLAINTEXT one."""
        self.directory = directory
        self.data = directory / "data"
        self._port = free_port()
        given = {} if plain else {**SETTINGS, **(settings or {})}
        config = None
        if listeners:
            config = directory / "server.properties"
            directory.mkdir(parents=True, exist_ok=True)
            given |= {"listeners": _listed({"PLAINTEXT": self._port, **listeners}), "log.dirs": self.data}
            config.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
            given = {}
        self._process = BrokerProcess(
            self.data,
            listen=f"127.0.0.1:{self._port}",
            config=config,
            settings=given,
            environment={WATCHDOG: ""} if plain else {},
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
        self.resume()
        self._process.stop(120)

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        HOLDING.hold(self.pid)

    def resume(self) -> None:
        HOLDING.release(self.pid)

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Kafka:
    """Apache Kafka with the flags of its own start script."""

    name = KAFKA

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        plain: bool = False,
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        self.directory = directory
        given = {} if plain else {**SETTINGS, **(settings or {})}
        self._kafka = ApacheKafka(directory, given, KAFKA_JVM_FLAGS)
        if listeners:
            self._kafka.settings["listeners"] = f"{self._kafka.settings['listeners']},{_listed(listeners)}"
        self.data = self._kafka.data

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
        self.resume()
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def pause(self) -> None:
        HOLDING.hold(self.pid)

    def resume(self) -> None:
        HOLDING.release(self.pid)

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def stop_cleanly(systems: Iterable[System]) -> None:
    """Stop those of Ottla in order, so that their watchdogs' findings are written."""
    for system in systems:
        if system.name == OTTLA:
            system.stop()


@contextmanager
def fresh_pair(directory: Path, only: set[str]) -> Iterator[list[System]]:
    """Create the systems in their own directories, not started. Kills what still runs at the end."""
    systems: list[System] = [make(directory / make.name) for make in (Ottla, Kafka) if make.name in only]
    try:
        yield systems
    finally:
        for system in systems:
            system.kill()
            system.wipe()
