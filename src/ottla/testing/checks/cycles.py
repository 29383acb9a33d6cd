"""Strongly connected components of a graph, to find cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set


def cyclic_parts(edges: Mapping[str, Set[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components with a cycle (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(edges.get(root, set()))))]
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges.get(other, set())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = set()
                    while True:
                        last = stack.pop()
                        on_stack.discard(last)
                        part.add(last)
                        if last == node:
                            break
                    if len(part) > 1 or node in edges.get(node, set()):
                        yield part
