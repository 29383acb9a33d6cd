"""The two systems under measurement: each is a process with its own directory and the kernel's figures for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.sheet import KAFKA, OTTLA
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


@dataclass(frozen=True, slots=True)
class Stall:
    """The event loop was held for `seconds` until `at`, on the monotonic clock."""

    at: float
    seconds: float
    place: str = ""
    """The innermost call of the loop at one moment of it, if that was taken."""


class _Held:
    """Pauses a process, and records when."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.times: list[tuple[float, float]] = []

    def hold(self, pid: int) -> None:
        if self._since is None:
            self._since = time.monotonic()
            os.kill(pid, signal.SIGSTOP)

    def release(self, pid: int) -> None:
        if self._since is not None:
            os.kill(pid, signal.SIGCONT)
            self.times.append((self._since, time.monotonic()))
            self._since = None


def _listed(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _with_place(at: float, seconds: float, stacks: list[dict[str, Any]]) -> Stall:
    within = [each["frames"][-1] for each in stacks if at - seconds <= each["at"] <= at and each["frames"]]
    return Stall(at, seconds, within[-1] if within else "")


class Ottla:
    """Ottla as `ottla start` runs it, with the watchdog of its event loop on."""

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
        self._watchdog = directory / "stalls.json"
        self._held = _Held()
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
            environment={} if plain else {"OTTLA_LOOP_WATCHDOG": str(self._watchdog)},
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
        self._held.hold(self.pid)

    def resume(self) -> None:
        self._held.release(self.pid)

    def stalls(self) -> list[Stall]:
        """After a stop: return the stalls of the event loop, except while the process was paused."""
        findings = json.loads(self._watchdog.read_text())
        found = [_with_place(each["at"], each["seconds"], findings["stacks"]) for each in findings["stalls"]]
        return [
            stall
            for stall in found
            if not any(
                begin <= stall.at and stall.at - stall.seconds <= end for begin, end in self._held.times
            )
        ]

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
        self._held = _Held()

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
        self._held.hold(self.pid)

    def resume(self) -> None:
        self._held.release(self.pid)

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


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
