"""A cluster of Apache Kafka nodes, each broker and controller, for comparison with an Ottla cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.testing.apache import LEAN_JVM_FLAGS, ApacheKafka, free_port


class ApacheCluster:
    """`count` nodes with ids from 1, one quorum, internal topics with as many replicas (at most three)."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        flags: list[str] = LEAN_JVM_FLAGS,
    ) -> None:
        ids = range(1, count + 1)
        quorum = {node_id: free_port() for node_id in ids}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in quorum.items())
        replicas = min(count, 3)
        common = {
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min(replicas, 2),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": min(replicas, 2),
        }
        self.nodes: dict[int, ApacheKafka] = {}
        for node_id in ids:
            node = ApacheKafka(directory / f"node-{node_id}", {**common, "node.id": node_id}, flags)
            own = f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{quorum[node_id]}"
            node.settings |= {"listeners": own, **(settings or {})}
            self.nodes[node_id] = node

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def format(self) -> None:
        for node in self.nodes.values():
            node.format()

    def start(self, timeout_s: float = 120) -> ApacheCluster:
        """Start all nodes that are not running, and wait for their ports."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait(timeout_s)
        return self

    def stop(self) -> None:
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.stop()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()
