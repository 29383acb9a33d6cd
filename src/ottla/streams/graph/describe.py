"""A topology as text, line by line what Kafka Streams' own description says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.java_order import java_set_order
from ottla.streams.graph.java_order import TreeSet
from ottla.streams.graph.operators import Sink, Source

if TYPE_CHECKING:
    from ottla.streams.graph.topology import Node, Subtopology, Topology


def describe(topology: Topology) -> str:
    """The text of Kafka Streams' `Topology.describe()`."""
    parts = [_global_part(part) if part.is_global else _part(part) for part in topology.subtopologies()]
    return "Topologies:\n " + "".join(f"  {part}" for part in parts)


class _Shown:
    """A node with its neighbours in the order in which they are shown, and the number of nodes below it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.size = 1
        self.before: TreeSet[_Shown] = TreeSet(_comes_before)
        self.after: TreeSet[_Shown] = TreeSet(_comes_before)

    def grow(self, by: int) -> None:
        self.size += by
        for one in self.before:
            one.grow(by)


def _comes_before(one: _Shown, other: _Shown) -> bool:
    return (-one.size, one.node.name) < (-other.size, other.node.name)


def _connected(nodes: list[Node]) -> list[_Shown]:
    shown = {node.name: _Shown(node) for node in nodes}
    for name in java_set_order(shown):
        one = shown[name]
        for parent in one.node.parents:
            above = shown[parent.name]
            one.before.add(above)
            above.after.add(one)
            above.grow(one.size)
    return list(shown.values())


def _part(part: Subtopology) -> str:
    ordered = sorted(_connected(part.nodes), key=lambda shown: (-shown.size, shown.node.name))
    lines = "".join(f"    {_line(shown)}\n" for shown in ordered)
    return f"Sub-topology: {part.id}\n{lines}\n"


def _global_part(part: Subtopology) -> str:
    lines = "".join(f"    {_line(shown)}\n" for shown in _connected(part.nodes))
    return f"Sub-topology: {part.id} for global store (will not generate tasks)\n{lines}"


def _line(shown: _Shown) -> str:
    node, operator = shown.node, shown.node.operator
    after, before = f"--> {_names(shown.after)}", f"<-- {_names(shown.before)}"
    if isinstance(operator, Source):
        return f"Source: {node.name} (topics: [{', '.join(java_set_order(operator.topics))}])\n      {after}"
    if isinstance(operator, Sink):
        where = (
            f"topic: {operator.topic}"
            if isinstance(operator.topic, str)
            else f"extractor class: {getattr(operator.topic.given, '__name__', operator.topic.given)}"
        )
        return f"Sink: {node.name} ({where})\n      {before}"
    stores = ", ".join(java_set_order(node.stores))
    return f"Processor: {node.name} (stores: [{stores}])\n      {after}\n      {before}"


def _names(nodes: TreeSet[_Shown]) -> str:
    return ", ".join(shown.node.name for shown in nodes) or "none"
