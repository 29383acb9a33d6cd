"""A distributed worker of Apache Kafka Connect 4.3.1, as a process."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from oracle.connect_java import connect_classpath
from ottla.testing.apache import LEAN_JVM_FLAGS
from ottla.testing.ports import free_ports
from ottla.testing.process import end_process


def cluster_keys(bootstrap: str, group: str) -> dict[str, str]:
    """The keys of a cluster that Java's workers and ours can take over from each other."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "3",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "500",
    }


@contextlib.contextmanager
def java_worker(folder: Path, keys: Mapping[str, str]) -> Iterator[str]:
    """Runs a worker; its address."""
    (port,) = free_ports(1)
    config = {**keys, "listeners": f"http://127.0.0.1:{port}", "rest.advertised.host.name": "127.0.0.1"}
    config["plugin.discovery"] = "service_load"
    file = folder / f"worker-{port}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    command = ["java", *LEAN_JVM_FLAGS, "-cp", connect_classpath()]
    log = (folder / f"worker-{port}.log").open("w")
    process = subprocess.Popen(
        [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        _await(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process)
        log.close()


def _await(url: str, process: subprocess.Popen) -> None:
    ticks = threading.Event()
    for _ in range(600):
        assert process.poll() is None, "the worker ended"
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(url, timeout=5):
                return
        ticks.wait(0.2)
    raise AssertionError("the worker did not become ready")
