"""What must hold at every moment, seen from inside: epochs, high watermarks, leaders, logs that agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.log.types import TopicPartition
from ottla.records.batch import iter_batches
from ottla.testing.sim.node import SimNode

K = TypeVar("K")

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


class Invariants:
    """`look` compares all nodes with each other and with what they were before; violations go to the list."""

    def __init__(self, nodes: Sequence[SimNode], violations: list[str]) -> None:
        self._nodes = nodes
        self._violations = violations
        self._quorum_leaders: dict[int, int] = {}
        self._partition_leaders: dict[tuple[TopicPartition, int], int] = {}
        self._high_watermarks: dict[tuple[int, int, TopicPartition], int] = {}
        self._agreed: dict[TopicPartition, int] = {}

    def look(self, *, final: bool = False) -> None:
        for node in self._nodes:
            broker = node.broker
            if broker is None or not node.alive:
                continue
            if broker.raft.is_leader:
                self._only_leader(self._quorum_leaders, broker.raft.leader_epoch, node.node_id, "the quorum")
            for partition in broker.replicas.partitions():
                if partition.is_leader:
                    self._only_leader(
                        self._partition_leaders,
                        (partition.topic_partition, partition.leader_epoch),
                        node.node_id,
                        f"{partition.topic_partition} in epoch {partition.leader_epoch}",
                    )
                if partition.log is not None:
                    key = (node.node_id, node.lives, partition.topic_partition)
                    mark = partition.log.high_watermark
                    if mark < self._high_watermarks.get(key, 0):
                        self._say(
                            f"the high watermark of {partition.topic_partition} on {node.host} went back "
                            f"from {self._high_watermarks[key]} to {mark}"
                        )
                    self._high_watermarks[key] = mark
        self._logs_agree(final)

    def _only_leader(self, leaders: dict[K, int], key: K, node_id: int, what: str) -> None:
        if leaders.setdefault(key, node_id) != node_id:
            self._say(f"{what} is led by {leaders[key]} and by {node_id}")

    def _logs_agree(self, final: bool) -> None:
        """Byte for byte, up to the lower of two high watermarks; each byte is looked at once, and all in the end."""
        logs: dict[TopicPartition, list[tuple[SimNode, PartitionLog]]] = {}
        for node in self._nodes:
            broker = node.broker
            if broker is None or not node.alive:
                continue
            for partition in broker.replicas.partitions():
                # A compacted log may lack on one replica what another one still has.
                if partition.log is not None and not partition.topic_partition.topic.startswith("__"):
                    logs.setdefault(partition.topic_partition, []).append((node, partition.log))
        for tp, replicas in logs.items():
            if len(replicas) < 2:
                continue
            end = min(log.high_watermark for _, log in replicas)
            start = 0 if final else self._agreed.get(tp, 0)
            start = max(start, *(log.log_start_offset for _, log in replicas))
            if start >= end:
                continue
            contents = [(node, _content(log, start, end)) for node, log in replicas]
            for node, content in contents[1:]:
                if content != contents[0][1]:
                    self._say(
                        f"{tp} from {start} to {end} is not the same on {contents[0][0].host} and {node.host}"
                    )
            self._agreed[tp] = end

    def _say(self, text: str) -> None:
        if text not in self._violations:
            self._violations.append(text)


def _content(log: PartitionLog, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end:
        records = log.read(start, 1 << 20, upper_offset=end).records
        before = start
        for pos, header in iter_batches(records):
            parts.append(bytes(records[pos : pos + header.size_in_bytes]))
            start = header.last_offset + 1
        if start == before:
            break
    return b"".join(parts)
