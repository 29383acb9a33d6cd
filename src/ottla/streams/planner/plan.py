"""A plan: a topology's nodes cut into stages, the strategy that runs them, and what was found out when it was made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final, NamedTuple

from ottla.streams.graph.topology import Node, Topology
from ottla.streams.loading import OwnClasses

OUT: Final = 1_000
"""The stage number of rows that are finished and only wait for the sink."""


class Strategy(Enum):
    """The ways to run a plan on Spark; `planner/strategies` has a module for each, and the manifest keeps the value."""

    NATIVE = "native"
    COUNTS = "counts"
    WINDOWED_COUNTS = "windowed-counts"
    ROUTED = "routed"
    GENERAL = "general"


class WindowedCount(NamedTuple):
    """A source and the windowed count that follows it directly."""

    source: Node
    counter: Node


@dataclass(slots=True)
class Stage:
    """The nodes of one stateful operator of Spark; stage 0 is the stateless one."""

    number: int
    nodes: list[Node]
    stores: list[str]


@dataclass(slots=True)
class Plan:
    """All that driver and workers know of an application; workers receive it pickled, once for each query."""

    topology: Topology
    nodes: list[Node]
    stage_of: dict[str, int]
    stages: list[Stage]
    joins_partitions: set[str]
    """Topics whose records are joined by key with those of other topics: all need the same number of partitions."""
    column_counters: dict[int, str] = field(default_factory=dict)
    """By the index of a source: the windowed count after it, where a stage may count whole columns at once."""
    strategy: Strategy = Strategy.GENERAL
    plain_counts: list[Node] = field(default_factory=list)
    """With the strategy COUNTS: the nodes whose counts Spark's own aggregation keeps."""
    windowed_counts: dict[str, WindowedCount] = field(default_factory=dict)
    """With the strategy WINDOWED_COUNTS: by topic, what is counted where its records are read."""
    sink_partitions: dict[str, int] = field(default_factory=dict)
    """The partition counts that a partitioner chooses from, for sink topics with a fixed name."""
    classes: OwnClasses = field(default_factory=OwnClasses)

    def index(self, node: Node) -> int:
        """The number by which rows name a node."""
        return self.nodes.index(node)

    def __reduce__(self) -> tuple[object, ...]:
        """The application's classes arrive first: serdes look at them while they are unpickled."""
        return _rebuilt, (self.classes, {one.name: getattr(self, one.name) for one in fields(self)})


def _rebuilt(_: OwnClasses, parts: dict[str, object]) -> Plan:
    plan = object.__new__(Plan)
    for name, value in parts.items():
        setattr(plan, name, value)
    return plan
