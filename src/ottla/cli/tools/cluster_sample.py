"""Counts of a cluster at one moment, and the rates between two moments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.admin.groups import committed_offsets, list_consumer_groups
from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.node_metrics import NodeNumbers, node_numbers
from ottla.admin.partitions import EARLIEST, LATEST, Partition, list_offsets
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


@dataclass(slots=True)
class Sample:
    """Counts, and the moment they were taken."""

    moment_s: float
    brokers: list[str]
    controller: int
    ends: dict[Partition, int] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    sizes: dict[Partition, int] = field(default_factory=dict)
    committed: dict[str, dict[Partition, int]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    headless: list[str] = field(default_factory=list)
    nodes: list[NodeNumbers] = field(default_factory=list)
    """Nodes that show their metrics over HTTP."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The host that each broker advertises."""


def take(cluster: Cluster, *, internal: bool = False) -> Sample:
    """Count now. Brokers that do not answer are left out."""
    metadata = cluster.metadata()
    sample = Sample(
        time.monotonic(), [node.address for node in cluster.nodes().values()], metadata.controller_id
    )
    sample.hosts = {node.id: node.host for node in cluster.nodes().values()}
    wanted: list[Partition] = []
    for topic in metadata.topics:
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition_index}"
            if each.leader_id < 0:
                sample.headless.append(name)
                continue
            if len(each.isr_nodes) < len(each.replica_nodes):
                sample.lacking.append(name)
            if internal or not topic.is_internal:
                wanted.append((topic.name or "", each.partition_index))
    sample.ends = _offsets(cluster, wanted, LATEST)
    sample.starts = _offsets(cluster, wanted, EARLIEST)
    _measure(cluster, sample)
    sample.nodes = node_numbers(cluster)
    for group in list_consumer_groups(cluster):
        sample.states[group.group_id] = group.state
        found = committed_offsets(cluster, group.group_id)
        sample.committed[group.group_id] = {partition: each.offset for partition, each in found.items()}
    return sample


def _offsets(cluster: Cluster, wanted: list[Partition], moment: int) -> dict[Partition, int]:
    found = list_offsets(cluster, dict.fromkeys(wanted, moment)) if wanted else {}
    return {partition: each.offset for partition, each in found.items() if each.error == ErrorCode.NONE}


def _measure(cluster: Cluster, sample: Sample) -> None:
    for node in cluster.nodes():
        try:
            answer = describe_log_dirs(cluster, node)
        except ApiException:
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    key = topic.name, each.partition_index
                    sample.sizes[key] = max(sample.sizes.get(key, 0), each.partition_size)


@dataclass(frozen=True, slots=True)
class TopicRates:
    """A topic between two samples."""

    topic: str
    partitions: int
    records_per_s: float
    bytes_per_s: float
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupRates:
    """A group between two samples."""

    group: str
    state: str
    records_per_s: float
    lag: int


def topic_rates(before: Sample, now: Sample) -> list[TopicRates]:
    """The busiest topics first."""
    elapsed_s = max(now.moment_s - before.moment_s, 1e-3)
    found = []
    for topic in sorted({name for name, _ in now.ends}):
        mine = [partition for partition in now.ends if partition[0] == topic]
        written = sum(now.ends[each] - before.ends.get(each, now.ends[each]) for each in mine)
        grown = sum(
            max(now.sizes.get(each, 0) - before.sizes.get(each, now.sizes.get(each, 0)), 0) for each in mine
        )
        held = sum(now.ends[each] - now.starts.get(each, 0) for each in mine)
        size = sum(now.sizes.get(each, 0) for each in mine)
        found.append(TopicRates(topic, len(mine), written / elapsed_s, grown / elapsed_s, held, size))
    return sorted(found, key=lambda each: (-each.records_per_s, each.topic))


def group_rates(before: Sample, now: Sample) -> list[GroupRates]:
    """The groups that are furthest behind first."""
    elapsed_s = max(now.moment_s - before.moment_s, 1e-3)
    found = []
    for group, offsets in now.committed.items():
        earlier = before.committed.get(group, {})
        read = sum(offset - earlier.get(each, offset) for each, offset in offsets.items())
        lag = sum(max(now.ends[each] - offset, 0) for each, offset in offsets.items() if each in now.ends)
        found.append(GroupRates(group, now.states[group], read / elapsed_s, lag))
    return sorted(found, key=lambda each: (-each.lag, each.group))
