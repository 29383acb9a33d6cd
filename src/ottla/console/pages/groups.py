"""Groups of all kinds: the list with lag and verdicts, and a consumer group with why it lags."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.groups import Group
from ottla.admin.transactions import describe_producers
from ottla.console import prometheus
from ottla.console.pages.topic import topic_settings
from ottla.console.reader import records as reading
from ottla.console.reader.decode import show
from ottla.console.render import num, size
from ottla.console.sampler.why import Facts, explain, span
from ottla.console.security.roles import RESET, SEE
from ottla.console.web import Values, View, page
from ottla.errors import ApiException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.admin.partitions import Partition
    from ottla.console.reader.records import Seen
    from ottla.console.sampler.state import GroupState

_logger = logging.getLogger(__name__)

ROWS: Final = 100
_MAX_FIND: Final = 200
_LOOKED_AT: Final = 24
"""Partitions of a group whose next record is looked at: those with the greatest lag."""
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
        "lag_lines": [("lag", found.history.recent.values() if found.history else [0.0])],
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


async def look_closer(view: View, found: GroupState) -> Facts:
    """What the samples do not hold: members, retention, the next records, open transactions."""
    behind = sorted(
        (
            (known.ends[number] - offset, (topic, number))
            for (topic, number), offset in found.committed.items()
            if (known := view.state.topics.get(topic)) is not None
            and number < len(known.ends)
            and known.ends[number] > offset
        ),
        reverse=True,
    )[:_LOOKED_AT]
    watched = [partition for _, partition in behind]
    retention, next_records = await asyncio.gather(
        _retention(view, sorted({topic for topic, _ in watched})), _next_records(view, found, watched)
    )
    stable = {partition: fetched for partition, (fetched, _) in next_records.items()}
    held = [
        partition for partition, lso in stable.items() if 0 <= lso <= found.committed[partition] and lso >= 0
    ]
    return Facts(
        members=_members(found.described),
        retention_ms=retention,
        unread_since_ms={
            partition: seen.timestamp for partition, (_, seen) in next_records.items() if seen is not None
        },
        stable_ends={partition: lso for partition, lso in stable.items() if lso >= 0},
        open_since=await _holders(view, held) if held else {},
        records={
            partition: _in_words(seen) for partition, (_, seen) in next_records.items() if seen is not None
        },
        leaderless=frozenset(
            (topic, number)
            for topic, number in found.committed
            if topic in view.state.topics and number in view.state.topics[topic].headless
        ),
        now_ms=int(time.time() * 1000),
    )


def _members(described: Group | None) -> dict[str, Sequence[Partition]]:
    if described is None:
        return {}
    names: dict[str, Sequence[Partition]] = {}
    for member in described.members:
        name = member.client_id or member.member_id
        names[name if name not in names else member.member_id] = member.assignment
    return names


async def _retention(view: View, topics: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic in topics:
        try:
            entries = await view.cluster.call(topic_settings, topic)
        except ApiException as error:
            _logger.info("The settings of %s are not shown: %s", topic, error.message)
            continue
        values = {each.name: each.value or "" for each in entries}
        if "delete" in values.get("cleanup.policy", "delete"):
            found[topic] = int(values.get("retention.ms") or -1)
    return found


async def _next_records(
    view: View, found: GroupState, partitions: list[Partition]
) -> dict[Partition, tuple[int, Seen | None]]:
    """For each partition its last stable offset and the record that the group reads next."""

    async def one(partition: Partition) -> tuple[int, Seen | None]:
        cached = view.cluster.next_records.get((partition, found.committed[partition]))
        if cached is not None and not cached[1].batch.is_transactional:
            return cached
        try:
            fetched, seen = await reading.read_at(
                view.cluster.reader, *partition, found.committed[partition], partition_bytes=64 << 10
            )
        except ApiException:
            return -1, None
        record = next((each for each in seen if not each.control), None)
        if record is not None:
            if len(view.cluster.next_records) > 10_000:
                view.cluster.next_records.clear()
            view.cluster.next_records[partition, found.committed[partition]] = fetched.stable, record
        return fetched.stable, record

    results = await asyncio.gather(*(one(partition) for partition in partitions))
    return dict(zip(partitions, results, strict=True))


async def _holders(view: View, partitions: list[Partition]) -> dict[Partition, str]:
    """Who keeps a transaction open on partitions, in words."""
    try:
        found = await view.cluster.call(describe_producers, partitions)
    except ApiException as error:
        _logger.info("Producers are not shown: %s", error.message)
        return {}
    words: dict[Partition, str] = {}
    for partition, producers in found.items():
        for each in producers:
            if each.current_txn_start_offset >= 0:
                since = span(time.time() - each.last_timestamp / 1000)
                words[partition] = (
                    f"producer {each.producer_id}, whose transaction is open for {since} or more"
                )
    return words


def _in_words(seen: Seen) -> str:
    value = seen.value
    if value is None:
        return ""
    if len(value) > 1 << 20:
        return f"The record there has {size(len(value))}."
    shown = show(value)
    if value[:1] in b"{[" and shown.kind != "json":
        return "The record there begins like JSON and is not valid."
    if seen.batch.is_transactional and seen.aborted:
        return "The record there belongs to an aborted transaction."
    return ""
