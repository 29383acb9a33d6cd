"""Workers of Connect as processes, and how far a connector is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.context import Bench
from bench.sheet import KAFKA
from bench.systems import Ottla, cpu_seconds, rss_mb
from ottla.testing.apache import KAFKA_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath
from ottla.testing.ports import free_ports
from ottla.testing.process import end_process

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
_LOOK_S = 0.02
_LIMIT_S = 240.0


class Worker:
    """A worker process and its REST address."""

    def __init__(self, tool: str, process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
        self.tool, self.process, self.url, self.folder = tool, process, url, folder

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=90) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                # A rebalance: Kafka's workers ask to try again.
                if error.code != 409 or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_S)

    @contextmanager
    def connector(self, name: str, **keys: str) -> Iterator[None]:
        config = {key.replace("_", "."): value for key, value in keys.items()}
        self.call("POST", "/connectors", {"name": name, "config": config})
        try:
            yield
        finally:
            self.call("DELETE", f"/connectors/{name}")


@contextmanager
def running_worker(
    bench: Bench,
    folder: Path,
    tool: str,
    broker: Ottla,
    group: str | None = None,
    plugins: Sequence[str] = (),
) -> Iterator[Worker]:
    """Starts a distributed worker, and measures how long it takes and what it needs before its first connector.

    A worker of a group that is given joins others: its start is not measured. `plugins` are coordinates of Java's.
    """
    name = group or bench.name(f"connect {tool}")
    (port,) = free_ports(1)
    keys = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.discovery": "service_load",
        "key.converter": STRING,
        "value.converter": STRING,
        "exactly.once.source.support": "enabled",
        "offset.storage.partitions": "5",
    }
    for kind in ("config", "offset", "status"):
        keys |= {f"{kind}.storage.topic": f"{name}-{kind}", f"{kind}.storage.replication.factor": "1"}
    file = folder / f"{name}-{port}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    command = [sys.executable, "-m", "ottla", "connect", "run", str(file)]
    if tool == KAFKA:
        parts = ("connect-runtime", "connect-file", "connect-json")
        path = classpath(*(f"org.apache.kafka:{one}:{VERSION}" for one in parts), *plugins)
        command = ["java", *KAFKA_JVM_FLAGS, "-cp", path, "org.apache.kafka.connect.cli.ConnectDistributed"]
        command.append(str(file))
    with (folder / f"{name}-{port}.log").open("wb") as log:
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=log)
    worker = Worker(tool, process, f"http://127.0.0.1:{port}", folder)
    try:
        until(process, lambda: _healthy(worker))
        if group is None:
            bench.sheet.add(tool, "connect worker", "start to /health", "s", time.monotonic() - began_s)
            bench.sheet.add(tool, "connect worker", "CPU of the start", "s", cpu_seconds(process.pid))
            bench.sheet.add(tool, "connect worker", "memory before connectors", "MB", rss_mb(process.pid))
        yield worker
    finally:
        end_process(process)


def _healthy(worker: Worker) -> bool:
    try:
        worker.call("GET", "/health")
    except (OSError, urllib.error.URLError):
        return False
    return True


def until(process: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done():
        if process.poll() is not None:
            raise RuntimeError("the worker ended by itself; see its log")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker was not done within {_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)


class Progress:
    """When something began to grow, when it reached its end, and the worker's CPU between."""

    def __init__(self, worker: Worker, size: Callable[[], int], wanted: int) -> None:
        self._worker, self._size, self._wanted = worker, size, wanted
        self.first_s = self.last_s = time.monotonic()
        self._before_s = cpu_seconds(worker.process.pid)
        self.cpu_s = 0.0

    def follow(self) -> Progress:
        until(self._worker.process, self._look)
        return self

    def _look(self) -> bool:
        found = self._size()
        if not found:
            # The state just before the first record.
            self.first_s, self._before_s = time.monotonic(), cpu_seconds(self._worker.process.pid)
        elif found >= self._wanted:
            self.last_s = time.monotonic()
            self.cpu_s = cpu_seconds(self._worker.process.pid) - self._before_s
            return True
        return False

    def add(self, bench: Bench, row: str, records: int) -> None:
        rate = records / (self.last_s - self.first_s)
        bench.sheet.add(self._worker.tool, row, "moved", "records/s", rate, higher=True)
        bench.sheet.add(self._worker.tool, row, "worker CPU", "us/record", self.cpu_s / records * 1e6)
