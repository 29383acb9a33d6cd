"""Cuts a topology into stages: stage 0 remembers nothing, each later one follows a shuffle and holds state.

A node runs as late as it can without another shuffle, so that a record crosses into Python as seldom as possible.
"""

from __future__ import annotations

from ottla.streams.errors import TopologyError
from ottla.streams.graph.operators import (
    GlobalTableSource,
    Process,
    Sink,
    Source,
    StreamTableJoin,
)
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.task import is_global
from ottla.streams.planner.count_patterns import windowed_count_after
from ottla.streams.planner.plan import Plan, Stage


def make_plan(topology: Topology) -> Plan:
    """The stages of a topology; which strategy runs them is chosen by `planner/strategies`."""
    nodes = list(topology.nodes.values())
    stage_of = _earliest(topology, nodes)
    _sink_down(topology, nodes, stage_of)
    last = max(stage_of.values())
    stages = []
    for number in range(last + 1):
        mine = [node for node in nodes if stage_of[node.name] == number]
        stores = dict.fromkeys(store for node in mine for store in _stores_of(node))
        stages.append(Stage(number, mine, list(stores)))
    counters = {number: windowed_count_after(topology, node) for number, node in enumerate(nodes)}
    return Plan(
        topology,
        nodes,
        stage_of,
        stages,
        _copartitioned(topology),
        {number: counter.name for number, counter in counters.items() if counter is not None},
    )


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
