"""A Connect worker and a broker in processes of their own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.connect_rest import Rest, eventually
from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.testing.process import BrokerProcess

LONG = "OTTLA_CONNECT_KILLS" in os.environ
"""Whether this is the long form of the kill tests."""


@contextlib.contextmanager
def broker_process(folder: Path, *, apache: bool) -> Iterator[BrokerProcess | ApacheKafka]:
    """A broker of Ottla or of Apache Kafka, with `bootstrap`, `kill` and `start`."""
    if not apache:
        ours = BrokerProcess(folder / "broker").start()
        try:
            yield ours
        finally:
            ours.kill()
        return
    if not java_is_here():
        pytest.skip("needs Java and Maven")
    kafka = ApacheKafka(folder / "kafka")
    try:
        kafka.format()
        yield kafka.start()
    finally:
        kafka.kill()


class WorkerProcess:
    def __init__(
        self, folder: Path, port: int, keys: dict[str, str], connectors: tuple[Path, ...] = ()
    ) -> None:
        self.rest = Rest(f"http://127.0.0.1:{port}")
        self._file = folder / f"worker-{port}.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self._words = [
            sys.executable,
            "-m",
            "ottla",
            "connect",
            "run",
            str(self._file),
            *map(str, connectors),
        ]
        self.log = folder / f"worker-{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> WorkerProcess:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        return self

    def ready(self) -> WorkerProcess:
        def healthy() -> bool:
            try:
                return self.rest.call("GET", "/health")[0] == 200
            except OSError:
                return False

        eventually(healthy, 60)
        return self

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def children(self) -> list[int]:
        """The processes that it started, and that are there."""
        assert self._process is not None
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(status.read_text().rpartition(")")[2].split()[1]) == self._process.pid:
                    found.append(int(status.parent.name))
        return found

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
