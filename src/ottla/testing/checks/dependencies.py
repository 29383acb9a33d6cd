"""Cycles among transactions, as Elle finds them: writes (ww), reads (wr) and what was not read yet (rw).

Two kinds of objects connect transactions. A partition is a list that they append to: its order is known, and a
transaction that read a value depends on its writer. A group's offset in a partition is a register that a
consume-transform-produce transaction reads and replaces. Kafka lets transactions that overlap in time interleave in
partitions, so writes to a list connect only those that did not. Time itself connects a transaction with those that
began after it had ended.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from math import inf

from ottla.testing.checks.cycles import cyclic_parts
from ottla.testing.checks.history import History, Outcome, Transaction
from ottla.testing.checks.seen import Anomaly, Seen

_TIME, _WW, _WR, _RW = "time", "ww", "wr", "rw"


class Graph:
    """Transactions, and why one stands before another."""

    def __init__(self) -> None:
        self.edges: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        """By first and second transaction: the kind of the edge and its reason."""

    def add(self, first: str, second: str, kind: str, reason: str) -> None:
        if first != second:
            self.edges[first].setdefault(second, (kind, reason))

    def cycles(self) -> Iterator[list[str]]:
        """Yield one short cycle for each strongly connected part."""
        for part in cyclic_parts({first: set(seconds) for first, seconds in self.edges.items()}):
            yield self._shortest(min(part), part)

    def _shortest(self, start: str, part: set[str]) -> list[str]:
        before: dict[str, str] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for following in self.edges[node]:
                if following == start:
                    path = [node]
                    while path[-1] != start:
                        path.append(before[path[-1]])
                    return path[::-1]
                if following in part and following not in before:
                    before[following] = node
                    waiting.append(following)
        raise AssertionError(f"{start} is in no cycle")


def check_cycles(history: History, seen: Seen) -> Iterator[Anomaly]:
    """Find cycles among the transactions that were committed, also those whose producer did not learn it."""
    committed = {
        each.name: each
        for each in history.transactions
        if each.outcome is Outcome.OK
        or (each.outcome is Outcome.UNKNOWN and each.name in _visible_owners(seen))
    }
    graph = Graph()
    _lists(graph, committed, seen)
    _reads(graph, committed, seen)
    _registers(graph, committed)
    _times(graph, committed)
    for cycle in graph.cycles():
        steps = [graph.edges[a][b] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        reasons = "; ".join(
            f"{name} before {following} ({kind}: {reason})"
            for name, following, (kind, reason) in zip(cycle, [*cycle[1:], cycle[0]], steps, strict=True)
        )
        yield Anomaly(_name([kind for kind, _ in steps]), reasons)


def _name(kinds: list[str]) -> str:
    """Elle's name of a cycle."""
    if kinds.count(_RW) > 1:
        return "anti-dependency cycle (G2)"
    if _RW in kinds:
        return "lost update (G-single)"
    return "read cycle (G1c)" if _WR in kinds else "write cycle (G0)"


def _visible_owners(seen: Seen) -> set[str]:
    return {owner for value, owner in seen.owner.items() if value in seen.read_committed}


def _end(transaction: Transaction) -> float:
    return inf if transaction.outcome is Outcome.UNKNOWN else transaction.ended


def _overlap(first: Transaction, second: Transaction) -> bool:
    return first.began <= _end(second) and second.began <= _end(first)


def _lists(graph: Graph, committed: dict[str, Transaction], seen: Seen) -> None:
    for partition, by_offset in seen.values.items():
        before = ""
        for offset, values in sorted(by_offset.items()):
            owner = seen.owner.get(min(values), "")
            if owner not in committed:
                continue
            if before and before != owner and not _overlap(committed[before], committed[owner]):
                graph.add(before, owner, _WW, f"it wrote before {offset} of {partition}")
            before = owner


def _reads(graph: Graph, committed: dict[str, Transaction], seen: Seen) -> None:
    for transaction in committed.values():
        for value in transaction.reads:
            owner = seen.owner.get(value, "")
            if owner in committed:
                graph.add(owner, transaction.name, _WR, f"it wrote {value!r}, which the other read")


def _registers(graph: Graph, committed: dict[str, Transaction]) -> None:
    """A group's offsets: each transaction takes the records after one offset and commits the next one."""
    chains: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for transaction in committed.values():
        for partition, (start, end) in transaction.taken.items():
            chains[transaction.group, partition].append((end, start, transaction.name))
    for (group, partition), chain in chains.items():
        chain.sort()
        where = f"{group} in {partition}"
        for number, (end, start, name) in enumerate(chain):
            if number:
                before = chain[number - 1]
                graph.add(before[2], name, _WW, f"it set {where} to {before[0]}, the other to {end}")
            # The version that it read: the last one at or before its first record.
            read = sum(version <= start for version, _, _ in chain)
            if read:
                graph.add(
                    chain[read - 1][2], name, _WR, f"the other began at its {chain[read - 1][0]} of {where}"
                )
            following = chain[read] if read < len(chain) else None
            if following is not None and following[2] != name:
                graph.add(
                    name, following[2], _RW, f"it began at {start} of {where}, the other set {following[0]}"
                )


def _times(graph: Graph, committed: dict[str, Transaction]) -> None:
    """Connect each transaction with the last ones that had ended when it began; others follow through those."""
    events: list[tuple[float, int, str]] = []
    for each in committed.values():
        events.append((each.began, 1, each.name))
        if _end(each) < inf:
            events.append((each.ended, 0, each.name))
    ended: set[str] = set()
    for at, is_begin, name in sorted(events):
        if is_begin:
            for before in sorted(ended):
                if committed[before].ended < at:
                    graph.add(before, name, _TIME, "it had ended before the other began")
        else:
            ended = {other for other in ended if committed[other].ended >= committed[name].began}
            ended.add(name)
