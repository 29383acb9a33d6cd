"""Clusters under measurement: Ottla's and Apache Kafka's, each node a process with its own directory."""

from __future__ import annotations

import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bench.sheet import KAFKA, OTTLA
from bench.stalls import HOLDING
from bench.systems import cpu_seconds, rss_mb
from ottla.testing.apache import KAFKA_JVM_FLAGS
from ottla.testing.apache_cluster import ApacheCluster
from ottla.testing.cluster import Cluster

_LONG_MS = 3_600_000
_HELD = {
    # While one cluster is measured, the other one is paused by signals: its nodes must not be taken for dead.
    "broker.session.timeout.ms": _LONG_MS,
    "controller.quorum.fetch.timeout.ms": _LONG_MS,
    "replica.lag.time.max.ms": _LONG_MS,
}
_SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 50,
    "transaction.state.log.num.partitions": 50,
}
_REPLICATED = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class ClusterSystem(Protocol):
    """A cluster that can be started, measured, paused, and lose a node."""

    name: str

    def __init__(self, directory: Path, count: int, *, held: bool) -> None: ...
    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill_all(self) -> None: ...
    def kill(self, node_id: int) -> None: ...
    def stop_one(self, node_id: int) -> None: ...
    def start_one(self, node_id: int) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def cpu_seconds(self) -> float: ...
    def rss_mb(self) -> float: ...
    def wipe(self) -> None: ...


class _Processes(ABC):
    """The parts that both kinds of cluster share."""

    directory: Path

    @abstractmethod
    def pids(self) -> list[int]:
        """The running processes."""

    def pause(self) -> None:
        for pid in self.pids():
            HOLDING.hold(pid)

    def resume(self) -> None:
        for pid in self.pids():
            HOLDING.release(pid)

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids()))

    def rss_mb(self) -> float:
        return sum(map(rss_mb, self.pids()))

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaCluster(_Processes):
    """Apache Kafka nodes with the flags of their own start script."""

    name = KAFKA

    def __init__(self, directory: Path, count: int, *, held: bool) -> None:
        self.directory = directory
        settings = _SETTINGS | (_HELD if held else {})
        self._cluster = ApacheCluster(directory, count, settings, KAFKA_JVM_FLAGS)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes.values() if node.running]

    def start(self) -> None:
        self._cluster.format()
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def kill_all(self) -> None:
        self._cluster.kill()

    def kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id].kill()

    def stop_one(self, node_id: int) -> None:
        self._cluster.nodes[node_id].terminate()

    def start_one(self, node_id: int) -> None:
        self._cluster.nodes[node_id].stop()
        self._cluster.nodes[node_id].start()


class OttlaCluster(_Processes):
    """Ottla nodes, each a process of its own, broker and controller."""

    name = OTTLA

    def __init__(self, directory: Path, count: int, *, held: bool) -> None:
        self.directory = directory
        settings: dict[str, object] = {**_SETTINGS, **_REPLICATED, **(_HELD if held else {})}
        self._cluster = Cluster(directory, count, settings=settings)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes.values() if node.running]

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop_all()

    def kill_all(self) -> None:
        self._cluster.kill_all()

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def stop_one(self, node_id: int) -> None:
        os.kill(self._cluster.nodes[node_id].pid, signal.SIGTERM)

    def start_one(self, node_id: int) -> None:
        self._cluster.restart(node_id)


CLUSTERS: Sequence[type[ClusterSystem]] = (OttlaCluster, KafkaCluster)
