"""Machines of a cluster: brokers that advertise the same host, as the processes of `ottla.processes` do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def by_machine(hosts: Mapping[int, str]) -> dict[str, list[int]]:
    """The brokers of each host, by id; machines in the order of their first broker.

    >>> by_machine({1: "a", 3: "b", 2: "a"})
    {'a': [1, 2], 'b': [3]}
    """
    found: dict[str, list[int]] = {}
    for node_id in sorted(hosts):
        found.setdefault(hosts[node_id], []).append(node_id)
    return found


def is_shared(machines: Mapping[str, Sequence[int]]) -> bool:
    """Whether a machine runs several brokers, so that machines say more than brokers do."""
    return any(len(brokers) > 1 for brokers in machines.values())


def on_one_machine(replicas: Iterable[int], hosts: Mapping[int, str]) -> bool:
    """Whether several replicas all stand on one machine: its loss would take all of them."""
    nodes = list(replicas)
    return len(nodes) > 1 and len({hosts.get(node, str(node)) for node in nodes}) == 1
