"""Invariants that hold at every moment, checked inside the nodes: epochs, high watermarks, leaders, equal logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.log.types import TopicPartition
from ottla.records.batch import iter_batches
from ottla.testing.sim.node import SimNode

K = TypeVar("K")

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.image import MetadataImage
    from ottla.replica.partition import Partition


class Invariants:
    """`look` compares all nodes with each other and with their last state; it passes violations to `say`."""

    def __init__(self, nodes: Sequence[SimNode], say: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._say = say
        self._quorum_leaders: dict[int, int] = {}
        self._partition_leaders: dict[tuple[TopicPartition, int], int] = {}
        self._high_watermarks: dict[Partition, int] = {}
        """High watermarks of current replicas: one that was removed and added again starts from zero."""
        self._images: tuple[int, ...] = ()
        self._agreed: dict[TopicPartition, int] = {}

    def look(self, *, final: bool = False) -> None:
        before, self._high_watermarks = self._high_watermarks, {}
        for node in self._nodes:
            raft, broker = node.raft, node.broker
            if raft is not None and raft.is_leader:
                epoch = raft.leader_epoch
                self._only_leader(self._quorum_leaders, epoch, node.node_id, f"the quorum in epoch {epoch}")
            if broker is None or not node.alive:
                continue
            for partition in broker.replicas.partitions():
                if partition.is_leader:
                    self._only_leader(
                        self._partition_leaders,
                        (partition.topic_partition, partition.leader_epoch),
                        node.node_id,
                        f"{partition.topic_partition} in epoch {partition.leader_epoch}",
                    )
                if partition.log is not None:
                    mark = self._high_watermarks[partition] = partition.log.high_watermark
                    if mark < before.get(partition, 0):
                        self._say(
                            f"the high watermark of {partition.topic_partition} on {node.host} went back "
                            f"from {before[partition]} to {mark}"
                        )
        self._images_agree()
        self._logs_agree(final)

    def _images_agree(self) -> None:
        """Check that nodes at the same metadata offset have equal metadata."""
        images = [(node, image) for node in self._nodes if (image := node.image) is not None]
        offsets = tuple(image.offset for _, image in images)
        if offsets == self._images:
            return
        self._images = offsets
        at: dict[int, tuple[SimNode, MetadataImage]] = {}
        for node, image in images:
            first, expected = at.setdefault(image.offset, (node, image))
            if not image.same_metadata(expected):
                self._say(f"the metadata at {image.offset} is not the same on {first.host} and {node.host}")

    def _only_leader(self, leaders: dict[K, int], key: K, node_id: int, what: str) -> None:
        if leaders.setdefault(key, node_id) != node_id:
            self._say(f"{what} is led by {leaders[key]} and by {node_id}")

    def _logs_agree(self, final: bool) -> None:
        """Check that logs are equal up to the lowest high watermark: each byte once, and all in the end."""
        logs: dict[TopicPartition, list[tuple[SimNode, PartitionLog]]] = {}
        for node in self._nodes:
            broker = node.broker
            if broker is None or not node.alive or node.sick:
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

    def in_sync(self) -> bool:
        """Return whether all replicas of all partitions are in sync in the newest metadata."""
        images = [image for node in self._nodes if (image := node.image) is not None]
        newest = max(images, key=lambda image: image.offset, default=None)
        return newest is not None and all(
            set(partition.isr) == set(partition.replicas) and partition.leader >= 0
            for topic in newest.topics.by_name.values()
            for partition in topic.partitions.values()
        )


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
