"""Four patterns of a topology that only count: the planner runs them faster than record by record.

All of them look at the graph alone. They hold where the order in which records are counted is not visible downstream.
"""

from __future__ import annotations

from typing import Final

from ottla.streams.graph import operators as op
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.record_cache import only_last_change_matters
from ottla.streams.planner.plan import WindowedCount
from ottla.streams.serdes import bytes_serde, natural_serde, str_serde

TEXT_SERDES: Final = (None, natural_serde, str_serde)
"""Serdes that read UTF-8: Arrow checks a whole column of it at once."""

_BEFORE_COUNTS: Final = (
    *(op.Source, op.Sink, op.PassThrough, op.Gate, op.Map, op.SelectKey, op.MapValues, op.FlatMap),
    *(op.FlatMapValues, op.Filter, op.Branch, op.Peek, op.Foreach, op.Print),
)


def preaggregable_count(source: Node) -> Node | None:
    """The count behind a repartition topic, if nothing else follows it: records may be added up before the shuffle."""
    if len(source.children) != 1:
        return None
    child = source.children[0]
    operator = child.operator
    return (
        child if isinstance(operator, op.Aggregate) and operator.is_count and not operator.send_old else None
    )


def plain_count_nodes(topology: Topology) -> list[Node]:
    """The counts without windows of which only the last change of a batch matters."""
    found = []
    for node in topology.nodes.values():
        operator = node.operator
        if isinstance(operator, op.Aggregate) and operator.is_count and not operator.send_old:
            alone = len(node.parents) == 1 and len(topology.users(operator.store)) == 1
            if alone and only_last_change_matters(node):
                found.append(node)
    return found


def has_only_plain_counts(topology: Topology) -> bool:
    """Whether all state of an application is plain counts, and all it writes comes from them."""
    counts = plain_count_nodes(topology)
    if not counts or any(node.stores for node in topology.nodes.values() if node not in counts):
        return False
    behind = nodes_behind(counts)
    before = [node for node in topology.nodes.values() if node.name not in behind and node not in counts]
    return all(_may_stand_before(node, counts) for node in before)


def nodes_behind(counts: list[Node]) -> dict[str, Node]:
    """All nodes that follow some nodes, by name."""
    found: dict[str, Node] = {}
    waiting = [child for node in counts for child in node.children]
    while waiting:
        node = waiting.pop()
        found[node.name] = node
        waiting.extend(node.children)
    return found


def _may_stand_before(node: Node, counts: list[Node]) -> bool:
    operator = node.operator
    if not isinstance(operator, _BEFORE_COUNTS):
        return False
    if isinstance(operator, op.Sink):
        return operator.internal
    if isinstance(operator, op.Source):
        if operator.internal:
            return all(child in counts for child in node.children)
        return operator.on_error is not op.OnError.DEAD_LETTER
    return True


def windowed_count_after(topology: Topology, node: Node) -> Node | None:
    """The windowed count that follows a source directly, if the order of its records is not visible downstream."""
    source = node.operator
    if not isinstance(source, op.Source) or len(node.children) != 1:
        return None
    child = node.children[0]
    operator = child.operator
    if not isinstance(operator, op.WindowAggregate) or not operator.is_count:
        return None
    plain = source.internal or (
        source.timestamp_of is None
        and source.key_serde in (*TEXT_SERDES, bytes_serde)
        and source.value_serde in (*TEXT_SERDES, bytes_serde)
    )
    alone = len(child.parents) == 1 and len(topology.users(operator.store)) == 1
    order_free = not operator.send_old and not operator.emit_on_close and only_last_change_matters(child)
    return child if plain and alone and order_free else None


def windowed_counts_by_topic(topology: Topology) -> dict[str, WindowedCount]:
    """By topic the source and the windowed count after it; empty unless every topic goes to such a count alone."""
    found: dict[str, WindowedCount] = {}
    for node in topology.sources:
        source = node.operator
        if not isinstance(source, op.Source) or source.internal:
            continue
        counter = windowed_count_after(topology, node)
        alone = len(source.topics) == 1 and source.topics[0] not in found
        if counter is None or not alone or source.on_error is op.OnError.DEAD_LETTER:
            return {}
        found[source.topics[0]] = WindowedCount(node, counter)
    return found
