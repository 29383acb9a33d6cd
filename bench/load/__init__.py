"""The load: each kind is one measured run in its own process, so that runs share no state."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

RUN_TIMEOUT_S = 900

_KNOWN_S = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send or to read. Each kind of run uses some of these fields."""

    bootstrap: str
    topic: str
    records: int = 0
    size: int = 100
    partitions: int = 4
    acks: str = "1"
    codec: str = "none"
    linger_ms: float = 5
    batch_records: int = 10_000
    in_flight: int = 1_000_000
    rate: int = 0
    """Records a second, or bytes a second of a reader; 0 means unlimited."""
    seconds: float = 0
    connections: int = 1
    start: int = 0
    """The offset to read each partition from."""
    keys: int = 0
    """The number of distinct keys; 0 means no key."""
    protocol: str = "classic"
    heartbeat_ms: int = 0
    """The heartbeat interval of a classic member; 0 means the client's default."""
    seed: int = 0
    """Random choices are the same for all runs with the same seed."""
    read_from: tuple[str, str] | None = None
    """Bootstrap servers and topic that a reader beside a sender reads, where it is not the sender's topic."""
    security: dict[str, str] = field(default_factory=dict)
    """Settings of librdkafka for TLS and SASL; none for plain connections."""


def command(kind: str, load: Load) -> list[str]:
    return [sys.executable, "-m", "bench.load", kind, json.dumps(asdict(load))]


def run(kind: str, load: Load) -> dict[str, float]:
    """Run one kind to its end and return its figures."""
    done = subprocess.run(
        command(kind, load), stdout=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT_S, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def start(kind: str, load: Load, *, signals_ready: bool = False) -> subprocess.Popen[str]:
    """Start one kind beside others; `finish` waits for its figures. With `signals_ready`, `wait_ready` works, too."""
    errors = subprocess.PIPE if signals_ready else None
    return subprocess.Popen(command(kind, load), stdout=subprocess.PIPE, stderr=errors, text=True)


def wait_ready(running: subprocess.Popen[str]) -> None:
    """Wait until a run started with `signals_ready` is ready."""
    assert running.stderr is not None
    while (line := running.stderr.readline()).strip() != "ready":
        if not line:
            raise RuntimeError(f"{running.args!r} ended before it was ready")


def finish(running: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = running.communicate(timeout=RUN_TIMEOUT_S)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, running.args)
    result: dict[str, float] = json.loads(out)
    return result


def create_topic(
    bootstrap: str, topic: str, partitions: int, config: dict[str, str] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic, and wait until the broker names a leader for each of its partitions."""
    new = NewTopic(topic, partitions, replicas, config=config or {})
    admin = _admin(bootstrap)  # its futures live only as long as it does
    admin.create_topics([new], operation_timeout=120, request_timeout=120)[topic].result(120)
    # The controller answers. The broker hears of the topic a moment later: on a busy machine, clients were faster.
    end = time.monotonic() + _KNOWN_S
    while time.monotonic() < end:
        found = admin.list_topics(topic, 30).topics[topic].partitions.values()
        if len(found) == partitions and all(each.leader >= 0 for each in found):
            return
        time.sleep(0.01)
    raise TimeoutError(f"{topic} did not get a leader for each of its {partitions} partitions")


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = _admin(bootstrap)
    admin.delete_topics([topic], operation_timeout=120, request_timeout=120)[topic].result(120)


def alter_topic(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ],
    )
    admin = _admin(bootstrap)
    admin.incremental_alter_configs([resource])[resource].result(60)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the leader of each partition."""
    found = _admin(bootstrap).list_topics(topic, 30).topics[topic].partitions
    return {number: partition.leader for number, partition in found.items()}


def leader_addresses(bootstrap: str, topic: str) -> dict[int, str]:
    """Return host and port of the leader of each partition."""
    found = _admin(bootstrap).list_topics(topic, 30)
    return {
        number: f"{found.brokers[partition.leader].host}:{found.brokers[partition.leader].port}"
        for number, partition in found.topics[topic].partitions.items()
    }


def until_in_sync(bootstrap: str, topic: str, replicas: int, deadline_s: float = 120) -> None:
    """Wait until every partition has a leader and this many in-sync replicas."""
    admin, end = _admin(bootstrap), time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = admin.list_topics(topic, 30).topics[topic].partitions.values()
        if found and all(each.leader >= 0 and len(each.isrs) == replicas for each in found):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{topic} did not get {replicas} in-sync replicas everywhere")


def _admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})


def percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        f"{name} {p}": ordered[min(int(len(ordered) * share), len(ordered) - 1)] for p, share in at.items()
    }
