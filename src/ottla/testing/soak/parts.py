"""The parts around the brokers in a soak: registry, Connect worker and console, processes that are asked each second.

A part may refuse while the cluster is under a fault. It must answer in the end.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports
from ottla.testing.process import end_process
from ottla.testing.registry import RegistryProcess

_EACH_S: Final = 1.0
_NOT_FOUND: Final = 404
_ORDERS: Final = {
    "connector.class": "io.confluent.kafka.connect.datagen.DatagenConnector",
    "kafka.topic": "soak-orders",
    "quickstart": "orders",
    "max.interval": "50",
}
_WORKER: Final = "connect"


class Parts:
    """Processes by name, and how often each answered."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        """By part and "answered" or "refused"."""
        self.last: dict[str, bool] = {}
        self._addresses: dict[str, str] = {}
        self._connectors: dict[str, dict[str, str]] = {}
        self._stopping = threading.Event()
        self._count = 0

    def add(self, name: str, pid: int, address: str = "") -> None:
        """Add a process; without an address it is not asked."""
        self.pids[name] = pid
        if address:
            self._addresses[name] = address

    def add_connector(self, name: str, config: dict[str, str]) -> None:
        """Ask for the status of a connector of the worker, too, and create it if it is not there."""
        self._addresses[name] = f"{self._addresses[_WORKER]}connectors/{name}/status"
        self._connectors[name] = config

    def ask_all(self) -> None:
        self._count += 1
        for name, address in self._addresses.items():
            good = self._ask(name, address)
            self.last[name] = good
            self.answers[name, "answered" if good else "refused"] += 1

    def _ask(self, name: str, address: str) -> bool:
        request = urllib.request.Request(address)
        if name == "registry":
            # A new schema now and then, and otherwise one that is known.
            schema = {"type": "record", "name": f"R{self._count // 20}", "fields": []}
            request = urllib.request.Request(
                f"{address}/subjects/soak-{self._count // 20}/versions",
                json.dumps({"schema": json.dumps(schema)}).encode(),
                {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if name in self._connectors and error.code == _NOT_FOUND:
                self._create(name, address)
        except OSError:
            pass
        return False

    def _create(self, name: str, address: str) -> None:
        """Create a connector, which the worker refuses until it has joined its group."""
        request = urllib.request.Request(
            address.replace("/status", "/config"),
            json.dumps(self._connectors[name]).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()

    def run(self) -> None:
        while not self._stopping.wait(_EACH_S):
            self.ask_all()

    def stop(self) -> None:
        self._stopping.set()


@contextlib.contextmanager
def running_parts(
    cluster: Cluster, directory: Path, connectors: Mapping[str, dict[str, str]]
) -> Iterator[Parts]:
    """Run the parts beside a cluster, with these connectors besides one that makes orders."""
    parts = Parts()
    with contextlib.ExitStack() as stack:
        registry = stack.enter_context(RegistryProcess(cluster.bootstrap))
        parts.add("registry", registry.pid, registry.url)
        connect_port, console_port = free_ports(2)
        worker = directory / "worker.properties"
        converter = "org.apache.kafka.connect.storage.StringConverter"
        worker.write_text(
            f"bootstrap.servers={cluster.bootstrap}\ngroup.id=soak-connect\n"
            f"key.converter={converter}\nvalue.converter=org.apache.kafka.connect.json.JsonConverter\n"
            f"listeners=http://127.0.0.1:{connect_port}\nexactly.once.source.support=enabled\n"
            + "".join(f"{name}.storage.topic=soak-{name}\n" for name in ("config", "offset", "status"))
        )
        for name, port, words in (
            (_WORKER, connect_port, ["connect", "run", str(worker)]),
            (
                "console",
                console_port,
                ["console", "--bootstrap-server", cluster.bootstrap, "--listen", f"127.0.0.1:{console_port}"],
            ),
        ):
            log = stack.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen([sys.executable, "-m", "ottla", *words], stdout=log, stderr=log)
            stack.callback(end_process, process, 30)
            path = "" if name == _WORKER else "health/ready"
            parts.add(name, process.pid, f"http://127.0.0.1:{port}/{path}")
        for name, config in {"soak-orders": _ORDERS, **connectors}.items():
            parts.add_connector(name, config)
        thread = threading.Thread(target=parts.run, name="soak-parts")
        thread.start()
        try:
            yield parts
        finally:
            parts.stop()
            thread.join()
            parts.ask_all()
