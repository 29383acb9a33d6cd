"""A node of several broker processes (`ottla.processes`) as a system under measurement."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.sheet import OTTLA
from bench.stalls import HOLDING
from bench.systems import HELD_SETTINGS, SETTINGS, cpu_seconds, rss_mb, wait_for_answer
from ottla.testing.ports import free_ports


class OttlaMachine:
    """One `server.properties` with `ottla.processes`: the supervisor and its brokers."""

    name = OTTLA

    def __init__(self, directory: Path, count: int, settings: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.count = count
        self.data = directory / "data"
        self._settings = {**SETTINGS, **HELD_SETTINGS, **(settings or {})}
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The supervisor's."""
        assert self._process is not None
        return self._process.pid

    def pids(self) -> list[int]:
        """The supervisor and its brokers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids()))

    def rss_mb(self) -> float:
        return sum(map(rss_mb, self.pids()))

    def start(self) -> float:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._port, controller, *_ = free_ports(2 + self.count)
        file = self.directory / "server.properties"
        given = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self.data,
            "ottla.processes": self.count,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            **self._settings,
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        ottla = [sys.executable, "-m", "ottla"]
        cluster = ["--config", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
        subprocess.run([*ottla, "storage", "format", *cluster], check=True, capture_output=True)
        begin = time.monotonic()
        with (self.directory / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                [*ottla, "start", "--config", str(file)], stdout=subprocess.DEVNULL, stderr=errors
            )
        wait_for_answer(self._port)
        return time.monotonic() - begin

    def stop(self) -> None:
        self.resume()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            for pid in reversed(self.pids()):
                os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        for pid in self.pids():
            HOLDING.hold(pid)

    def resume(self) -> None:
        if self._process is not None and self._process.poll() is None:
            for pid in reversed(self.pids()):
                HOLDING.release(pid)

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
