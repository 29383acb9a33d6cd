"""A real Prometheus, and traffic for it to see."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
WAIT_S = 120


def expressions(panel: Any) -> Iterator[str]:
    """The expressions of a dashboard."""
    if isinstance(panel, dict):
        if isinstance(panel.get("expr"), str):
            yield panel["expr"]
        for inner in panel.values():
            yield from expressions(inner)
    elif isinstance(panel, list):
        for inner in panel:
            yield from expressions(inner)


class Prometheus:
    """A Prometheus process that scrapes every second."""

    def __init__(self, directory: Path, jobs: Sequence[Mapping[str, object]]) -> None:
        """`jobs` are the scrape configurations."""
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": list(jobs)}
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )

    def ask(self, expression: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=30) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found

    def until(self, expression: str, cluster: Cluster, busy: Busy) -> None:
        """Wait until the expression has an answer, with traffic meanwhile."""

        def answered() -> bool:
            busy.work()
            try:
                return bool(self.ask(expression))
            except OSError:
                return False

        cluster.wait_for(answered, WAIT_S)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Busy:
    """A producer and a group."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe(["orders"])

    def work(self) -> None:
        """Write a few records and read them, for about a second."""
        until = time.monotonic() + 1
        while time.monotonic() < until:
            self.producer.produce("orders", b"x" * 100)
            self.producer.flush(10)
            self.consumer.poll(0.1)
        self.consumer.commit(asynchronous=True)
