"""Overview: is all well, how much comes in, which groups are behind, and how the nodes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.findings import cluster_findings
from ottla.console.render import short, size
from ottla.console.security.roles import SEE
from ottla.console.web import Values, View, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.sampler.state import ClusterState, GroupState

_LINES = 5
_GROUPS = 8


@page("/", "overview.html", live=("sentence", "tiles", "charts", "lists", "nodes"), menu="overview")
async def overview(view: View) -> Values:
    """The first page of a cluster."""
    state = view.state
    everything = view.principal.may_everywhere(SEE, view.cluster.name)
    findings = cluster_findings(state, lambda resource: everything or view.may(SEE, resource))
    worst = next((each for each in findings if each.severity in ("bad", "warn")), None)
    seen = [
        group for group in state.groups.values() if everything or view.may(SEE, f"group:{group.group_id}")
    ]
    behind = sorted(seen, key=lambda group: -group.lag)
    return {
        "findings": findings,
        "worst": worst,
        "more": sum(each.severity in ("bad", "warn") for each in findings) - 1,
        "behind": _worst_first(behind)[:_GROUPS],
        "lines": busiest(view),
        "size_lines": [("bytes", state.byte_rate.recent.values())],
        "in_trouble": state.headless + state.lacking,
        "partitions": sum(topic.partitions for topic in state.topics.values()),
        "replicas": max((topic.replication for topic in state.topics.values()), default=0),
        "led": _led(state),
        "short_per_s": lambda value: f"{short(value)}/s",
        "size_per_s": lambda value: f"{size(value)}/s",
    }


def _worst_first(groups: Sequence[GroupState]) -> list[GroupState]:
    order = {"bad": 0, "warn": 1, "info": 2, "ok": 3}
    shown = [group for group in groups if group.committed]
    return sorted(
        shown, key=lambda g: (order[g.findings[0].severity] if g.findings else 4, -g.lag, g.group_id)
    )


def busiest(view: View) -> list[tuple[str, list[float]]]:
    """The topics with the most records in the last ten minutes, and the sum of the others."""
    state = view.state
    known = [
        (topic.name, topic.history.recent.values())
        for topic in state.topics.values()
        if topic.history is not None and not topic.internal and view.may(SEE, f"topic:{topic.name}")
    ]
    known.sort(key=lambda each: -sum(each[1]))
    if len(known) <= _LINES + 1:
        return known or [("all topics", state.rate.recent.values())]
    rest = known[_LINES:]
    longest = max(len(values) for _, values in rest)
    total = [0.0] * longest
    for _, values in rest:
        for index, value in enumerate(reversed(values)):
            total[longest - 1 - index] += value
    return [*known[:_LINES], (f"{len(rest)} others", total)]


def _led(state: ClusterState) -> dict[int, int]:
    found = dict.fromkeys(state.nodes, 0)
    for topic in state.topics.values():
        for leader in topic.leaders:
            if leader in found:
                found[leader] += 1
    return found
