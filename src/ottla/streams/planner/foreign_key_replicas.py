"""Foreign key joins for Spark: answers come back to a later stage, which therefore keeps a copy of the table."""

from __future__ import annotations

from dataclasses import replace

from ottla.streams.graph.operators import (
    ForeignResolve,
    ForeignSend,
    Sink,
    Source,
    Store,
    StoreKind,
    TableReplica,
)
from ottla.streams.graph.topology import Topology
from ottla.streams.graph.views import StoreView


def with_replicas(topology: Topology, tables: dict[str, str]) -> Topology:
    """The same topology, but each resolver looks at a copy of its table; `tables` says which node makes it."""
    if not tables:
        return topology
    changed = Topology()
    for store in topology.stores.values():
        changed.add_store(store)
    for node in topology.nodes.values():
        operator, stores = node.operator, list(node.stores)
        if isinstance(operator, ForeignResolve):
            copy = f"{node.name}-table"
            changed.add_store(Store(copy, StoreKind.KEY_VALUE, logged=False))
            changed.add(f"{node.name}-copy", TableReplica(copy), [tables[node.name]], [copy])
            operator, stores = replace(operator, table=StoreView(copy)), [copy]
        changed.add(node.name, operator, [parent.name for parent in node.parents], stores)
    return changed


def resolved_tables(topology: Topology) -> dict[str, str]:
    """For each resolver the node of the table whose rows asked: where their subscriptions are sent from."""
    tables: dict[str, str] = {}
    senders = [node for node in topology.nodes.values() if isinstance(node.operator, ForeignSend)]
    for sender in senders:
        reached = [sender]
        seen: set[str] = set()
        while reached:
            node = reached.pop()
            if node.name in seen:
                continue
            seen.add(node.name)
            if isinstance(node.operator, ForeignResolve):
                tables.setdefault(node.name, sender.parents[0].name)
                continue
            if isinstance(node.operator, Sink) and node.operator.internal:
                reached.extend(
                    other
                    for other in topology.sources
                    if isinstance(other.operator, Source) and node.operator.topic in other.operator.topics
                )
            reached.extend(node.children)
    return tables
