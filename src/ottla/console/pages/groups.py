"""Groups of all kinds: the list with lag and verdicts, and a consumer group with why it lags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console import prometheus
from ottla.console.draw.chart import MAX_SERIES
from ottla.console.pages.group_facts import look_closer
from ottla.console.render import num
from ottla.console.sampler.samples import pairs
from ottla.console.sampler.state import SAMPLE_EACH_S
from ottla.console.sampler.why import Facts, explain
from ottla.console.security.roles import RESET, SEE
from ottla.console.web import Values, View, page

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.admin.partitions import Partition
    from ottla.console.sampler.state import GroupState

ROWS: Final = 100
_MAX_FIND: Final = 200
_SEVERAL: Final = 2
_KINDS: Final = (
    ("", "All"),
    ("consumer", "Consumer"),
    ("share", "Share"),
    ("streams", "Streams"),
    ("bad", "In trouble"),
)
_ORDER: Final = {"bad": 0, "warn": 1, "info": 2, "ok": 3}


def _severity(group: GroupState) -> int:
    return _ORDER[group.findings[0].severity] if group.findings else 4


_SORTS: Final[dict[str, Callable[[GroupState], object]]] = {
    "name": lambda group: group.group_id,
    "lag": lambda group: (group.lag, group.group_id),
    "time": lambda group: (group.lag_s or 0.0, group.group_id),
    "members": lambda group: (group.members, group.group_id),
    "verdict": lambda group: (-_severity(group), group.lag, group.group_id),
}


def _fits(group: GroupState, kind: str) -> bool:
    match kind:
        case "consumer":
            return group.kind in ("Classic", "Consumer")
        case "share":
            return group.kind == "Share"
        case "streams":
            return group.kind == "Streams"
        case "bad":
            return _severity(group) <= 1
    return True


def group_url(view: View, group: GroupState) -> str:
    """The page of a group, by its kind."""
    if group.kind == "Share":
        return view.url("share", id=group.group_id)
    if group.kind == "Streams":
        return view.url("streams", id=group.group_id)
    return view.url("group", id=group.group_id)


@page("/groups", "groups.html", live=("rows",), menu="groups")
async def groups(view: View) -> Values:
    """The list of groups."""
    needle, kind = view.text("q")[:_MAX_FIND].lower(), view.text("kind")
    found = [
        group
        for group in view.state.groups.values()
        if needle in group.group_id.lower()
        and _fits(group, kind)
        and view.may(SEE, f"group:{group.group_id}")
    ]
    sort = view.text("sort", "verdict")
    descending = view.text("order", "asc" if sort == "name" else "desc") == "desc"
    found.sort(key=_SORTS.get(sort, _SORTS["verdict"]), reverse=descending)  # type: ignore[arg-type]
    start = view.number("from", 0)
    return {
        "rows": found[start : start + ROWS],
        "count": len(found),
        "start": start,
        "next_url": view.same(**{"from": start + ROWS}) if start + ROWS < len(found) else "",
        "previous_url": view.same(**{"from": max(start - ROWS, 0) or None}) if start else "",
        "sort": sort,
        "descending": descending,
        "find": view.text("q")[:_MAX_FIND],
        "kinds": _KINDS,
        "kind": kind,
        "group_url": lambda group: group_url(view, group),
        "commands": [f"ottla groups --bootstrap-server {view.cluster.bootstrap} --list"],
    }


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a group."""

    topic: str
    number: int
    member: str
    committed: int
    end: int | None
    lag: int | None
    behind_s: float | None
    loss_s: float | None


@page(
    "/group",
    "group.html",
    resource="group:{id}",
    live=("verdict", "charts", "places", "members"),
    menu="groups",
)
async def group(view: View) -> Values:
    """A consumer group."""
    found = view.group()
    described = found.described
    facts = await look_closer(view, found)
    findings = explain(list(found.samples), facts)
    owners = {
        partition: member.client_id or member.member_id
        for member in (described.members if described is not None else [])
        for partition in member.assignment
    }
    return {
        "group": found,
        "described": described,
        "findings": findings,
        "record_url": lambda item: _record_url(view, found, item.partition) if item.rule == "stalled" else "",
        "places": places(view, found, facts, owners),
        "lag_lines": lag_lines(found),
        "lag_each_s": SAMPLE_EACH_S if len(found.by_topic) >= _SEVERAL else 2.0,
        "show_lag": num,
        "week": await prometheus.week(
            view,
            prometheus.group_lag(found.group_id),
            "lag",
            "Lag in records, a week, from Prometheus",
            num,
        ),
        "may_reset": view.may(RESET, f"group:{found.group_id}"),
        "crumbs": [("Groups", view.url("groups"))],
        "commands": [
            f"ottla consumer-groups --bootstrap-server {view.cluster.bootstrap} --describe --group '{found.group_id}'"
        ],
    }


def lag_lines(found: GroupState) -> list[tuple[str, list[float]]]:
    """The lag of a group over time: in all, or for each topic of several, the one that is furthest behind first."""
    if len(found.by_topic) < _SEVERAL:
        return [("lag", list(found.history.recent.values()) if found.history else [0.0])]
    lines: dict[str, list[float]] = {name: [0.0] * len(found.samples) for name in found.by_topic}
    for index, sample in enumerate(found.samples):
        for (topic, _), offset, end in pairs(sample.committed, sample.ends):
            if topic in lines and end > offset:
                lines[topic][index] += end - offset
    ordered = sorted(lines.items(), key=lambda line: (-line[1][-1] if line[1] else 0.0, line[0]))
    if len(ordered) > MAX_SERIES:
        rest = [
            sum(values) for values in zip(*(values for _, values in ordered[MAX_SERIES - 1 :]), strict=True)
        ]
        ordered = [*ordered[: MAX_SERIES - 1], ("others", rest)]
    return ordered


def _record_url(view: View, found: GroupState, partition: Partition | None) -> str:
    if partition is None:
        return ""
    return view.url("t", partition[0], partition[1], found.committed[partition])


def places(view: View, found: GroupState, facts: Facts, owners: dict[Partition, str]) -> list[Place]:
    """The partitions of a group with their lag, in records and in time."""
    rows = []
    for (topic, number), offset in found.committed.items():
        known = view.state.topics.get(topic)
        end = known.ends[number] if known is not None and number < len(known.ends) else None
        lag = max(end - offset, 0) if end is not None and end >= 0 else None
        since = facts.unread_since_ms.get((topic, number))
        behind = None if since is None or since < 0 else max((facts.now_ms - since) / 1000, 0.0)
        if lag == 0:
            behind = 0.0
        keep = facts.retention_ms.get(topic, -1)
        loss = (since + keep - facts.now_ms) / 1000 if lag and since is not None and keep >= 0 else None
        rows.append(Place(topic, number, owners.get((topic, number), ""), offset, end, lag, behind, loss))
    return rows
