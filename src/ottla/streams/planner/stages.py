"""Cuts a topology into stages: stage 0 remembers nothing, each later one follows a shuffle and holds state.

A node runs as late as it can without another shuffle, so that a record crosses into Python as seldom as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from ottla.streams.errors import TopologyError
from ottla.streams.graph.operators import (
    Aggregate,
    ForeignResolve,
    GlobalTableSource,
    Process,
    Sink,
    Source,
    StreamTableJoin,
)
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.task import is_global
from ottla.streams.loading import OwnClasses

OUT: Final = 1_000
"""The stage of rows that are finished and only wait for the sink."""


@dataclass(slots=True)
class Stage:
    """What runs in one stateful operator of Spark (or, for number 0, in one stateless one)."""

    number: int
    nodes: list[Node]
    stores: list[str]


@dataclass(slots=True)
class Plan:
    topology: Topology
    nodes: list[Node]
    stage_of: dict[str, int]
    stages: list[Stage]
    joins_partitions: set[str]
    """Topics whose partitions meet records of other topics by key: all must have as many partitions."""
    only_counts: bool = False
    """All state is plain counts: Spark's own aggregation keeps them, and the query tells what has changed."""
    sink_partitions: dict[str, int] = field(default_factory=dict)
    """What a partitioner may choose from, for the topics that are named."""
    classes: OwnClasses = field(default_factory=OwnClasses)

    def index(self, node: Node) -> int:
        return self.nodes.index(node)

    def __reduce__(self) -> tuple[Any, ...]:
        """The application's classes arrive first: serdes look at them as they are unpickled."""
        return _rebuilt, (self.classes, {one.name: getattr(self, one.name) for one in fields(self)})


def _rebuilt(_: OwnClasses, parts: dict[str, Any]) -> Plan:
    return Plan(**parts)


def make_plan(topology: Topology) -> Plan:
    nodes = list(topology.nodes.values())
    stage_of = _earliest(topology, nodes)
    _sink_down(topology, nodes, stage_of)
    last = max(stage_of.values())
    stages = []
    for number in range(last + 1):
        mine = [node for node in nodes if stage_of[node.name] == number]
        stores = dict.fromkeys(store for node in mine for store in _stores_of(node))
        stages.append(Stage(number, mine, list(stores)))
    return Plan(topology, nodes, stage_of, stages, _copartitioned(topology))


def preaggregable_count(plan: Plan, source: Node) -> Node | None:
    """The count right behind a repartition topic, if that is all that follows: its records may be added up early."""
    if len(source.children) != 1:
        return None
    child = source.children[0]
    operator = child.operator
    return child if isinstance(operator, Aggregate) and operator.is_count and not operator.send_old else None


def _is_stateful(node: Node) -> bool:
    return (
        bool(node.stores) or isinstance(node.operator, (Process, GlobalTableSource)) or _looks_up_global(node)
    )


def _looks_up_global(node: Node) -> bool:
    return isinstance(node.operator, StreamTableJoin) and node.operator.key_of is not None


def _stores_of(node: Node) -> list[str]:
    if _looks_up_global(node):
        assert isinstance(node.operator, StreamTableJoin)
        return [*node.operator.table.stores]
    return node.stores


def _earliest(topology: Topology, nodes: list[Node]) -> dict[str, int]:
    """The lowest stage for each node: after its parents, behind its shuffle, beside those it shares a store with."""
    stage_of = {node.name: 1 if _is_stateful(node) else 0 for node in nodes}
    sinks = {
        node.operator.topic: node
        for node in nodes
        if isinstance(node.operator, Sink) and node.operator.internal
    }
    users: dict[str, list[Node]] = {}
    for node in nodes:
        for store in _stores_of(node):
            users.setdefault(store, []).append(node)
    changed = True
    while changed:
        changed = False
        for node in nodes:
            wanted = max([stage_of[node.name], *(stage_of[parent.name] for parent in node.parents)])
            if isinstance(node.operator, Source) and node.operator.internal:
                wanted = max(wanted, stage_of[sinks[node.operator.topics[0]].name] + 1)
            for store in _stores_of(node):
                wanted = max([wanted, *(stage_of[user.name] for user in users[store])])
            if wanted > len(nodes):
                raise TopologyError(f"{node.name} depends on its own results: Spark cannot run that")
            changed |= wanted != stage_of[node.name]
            stage_of[node.name] = wanted
    return stage_of


def _sink_down(topology: Topology, nodes: list[Node], stage_of: dict[str, int]) -> None:
    """A node without state moves to the stage of what follows it, if all of that runs in one and the same."""
    for node in reversed(nodes):
        if _is_stateful(node) or isinstance(node.operator, Sink) or not node.children:
            continue
        if isinstance(node.operator, Source) and node.operator.internal:
            continue
        following = {stage_of[child.name] for child in node.children}
        if len(following) == 1:
            stage_of[node.name] = following.pop()


def _copartitioned(topology: Topology) -> set[str]:
    """Topics read straight into a sub-topology that has other sources as well."""
    topics: set[str] = set()
    for part in topology.subtopologies():
        sources = [node for node in part.sources if not is_global(node)]
        stateful = any(node.stores for node in part.nodes)
        if len(sources) > 1 and stateful:
            for node in sources:
                if isinstance(node.operator, Source) and not node.operator.internal:
                    topics.update(node.operator.topics)
    return topics


def resolves_foreign_keys(topology: Topology) -> bool:
    return any(isinstance(node.operator, ForeignResolve) for node in topology.nodes.values())
