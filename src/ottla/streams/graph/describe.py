"""A topology as text, line by line what Kafka Streams' own description says."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.streams.graph.operators import Sink, Source
from ottla.streams.graph.topology import Node, Subtopology, Topology


def describe(topology: Topology) -> str:
    parts = [_global_part(part) if part.is_global else _part(part) for part in topology.subtopologies()]
    return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def java_set_order(names: Iterable[str]) -> list[str]:
    """The order in which Java's HashSet of strings hands them out."""
    chosen = list(dict.fromkeys(names))
    slots = 16
    while len(chosen) > slots * 3 // 4:
        slots *= 2
    return sorted(chosen, key=lambda name: _java_hash(name) & (slots - 1))


def _java_hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _part(part: Subtopology) -> str:
    sizes = _sizes(part.nodes)
    ordered = sorted(part.nodes, key=lambda node: (-sizes[node.name], node.name))
    lines = "".join(f"    {_line(node, sizes)}\n" for node in ordered)
    return f"Sub-topology: {part.id}\n{lines}\n"


def _global_part(part: Subtopology) -> str:
    sizes = _sizes(part.nodes)
    lines = "".join(f"    {_line(node, sizes)}\n" for node in part.nodes)
    return f"Sub-topology: {part.id} for global store (will not generate tasks)\n{lines}"


def _sizes(nodes: list[Node]) -> dict[str, int]:
    """How many paths lead down from each node, itself included: what the lines are sorted by."""
    inside = {node.name for node in nodes}
    sizes: dict[str, int] = {}

    def size(node: Node) -> int:
        if node.name not in sizes:
            sizes[node.name] = 1 + sum(size(child) for child in node.children if child.name in inside)
        return sizes[node.name]

    for node in nodes:
        size(node)
    return sizes


def _line(node: Node, sizes: dict[str, int]) -> str:
    after = f"--> {_names(node.children, sizes)}"
    before = f"<-- {_names(node.parents, sizes)}"
    operator = node.operator
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


def _names(nodes: list[Node], sizes: dict[str, int]) -> str:
    ordered = sorted(nodes, key=lambda node: (-sizes.get(node.name, 0), node.name))
    return ", ".join(node.name for node in ordered) or "none"
