"""Replay: a new group at a moment of the past beside the old one, followed until it has caught up.

The console sets the offsets and says how to start the new version. It never runs code itself.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final

from ottla.admin.groups import commit_offsets, committed_offsets
from ottla.admin.partitions import EARLIEST, LATEST, Partition, offsets_at
from ottla.console.pages.time_travel import moment_of
from ottla.console.plans import Form, Plan, change
from ottla.console.security.roles import RESET, SEE
from ottla.console.waiting import HANDLE, Waiting
from ottla.console.web import BadInput, Values, View, page

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_waiting: Final = Waiting[dict[Partition, int]]()
"""The offsets of plans: a time relative to now is another one when a person agrees."""
_VERSION: Final = re.compile(r"^(.*?)(?:-v([0-9]{1,6}))?$", re.S)


def next_name(name: str) -> str:
    """The name of the next version: `billing` becomes `billing-v2`, `billing-v2` becomes `billing-v3`."""
    found = _VERSION.match(name)
    assert found is not None
    return f"{found[1]}-v{int(found[2] or 1) + 1}"


def verdict(old_lag: int, new_lag: int, new_members: int, new_rate: float) -> tuple[str, str]:
    """(tone, sentence) about how far the new group is."""
    if new_members <= 0:
        return "warn", "Nobody reads with the new group yet: start the new version."
    if new_lag <= old_lag:
        return "ok", "The new version has caught up: stop the old one, and switch its readers over."
    left = new_lag - old_lag
    if new_rate > 0:
        return (
            "info",
            f"{left:,} records to go, about {left / new_rate / 60:.0f} min at {new_rate:,.0f} a second.",
        )
    return "info", f"{left:,} records to go."


@page("/replay", "replay.html", resource="group:{id}", live=("progress",), menu="groups")
async def replay(view: View) -> Values:
    """Begin a replay of a group, or follow one."""
    group = view.group()
    new = view.request.query_params.get("new", "")
    fresh = view.state.groups.get(new) if new and view.may(SEE, f"group:{new}") else None
    progress = []
    if fresh is not None:
        for topic, number in sorted(group.committed.keys() | fresh.committed.keys()):
            one = view.state.topics.get(topic)
            end = one.ends[number] if one is not None and number < len(one.ends) else -1
            place = topic, number
            progress.append((place, group.committed.get(place), fresh.committed.get(place), end))
    return {
        "group": group,
        "new": new,
        "fresh": fresh,
        "progress": progress,
        "verdict": verdict(group.lag, fresh.lag, fresh.members, fresh.rate) if fresh is not None else None,
        "suggested": next_name(group.group_id),
        "may_reset": view.principal.may_somewhere(RESET, view.cluster.name),
        "crumbs": [("Groups", view.url("groups")), (group.group_id, view.url("group", id=group.group_id))],
        "start": f"KAFKA_GROUP_ID={shlex.quote(new or next_name(group.group_id))} ./your-application",
    }


def _offsets(cluster: Cluster, old: str, moment_ms: int) -> dict[Partition, int]:
    partitions = list(committed_offsets(cluster, old))
    starts, ends = offsets_at(cluster, partitions, EARLIEST), offsets_at(cluster, partitions, LATEST)
    found = offsets_at(cluster, partitions, moment_ms)
    return {each: max(starts[each], offset if offset >= 0 else ends[each]) for each, offset in found.items()}


@change("replay.begin", RESET)
async def plan_begin(view: View, form: Form) -> Plan:
    """Give a new group the offsets of a moment, on the partitions of an old one."""
    old, new = form.get("group", ""), form.get("new", "").strip()
    view.require(SEE, f"group:{old}")
    if not new or len(new) > 249 or new == old:
        raise BadInput("The new group needs a name of its own.")
    view.require(RESET, f"group:{new}")
    purpose = json.dumps([old, new])
    handle = form.get(HANDLE, "")
    wanted = _waiting.get(handle, purpose)
    if wanted is None:
        wanted = await view.cluster.call(_offsets, old, moment_of(form.get("moment", "")))
        handle = _waiting.put(wanted, purpose)
    begun = wanted
    there = await view.cluster.call(committed_offsets, new)

    async def apply() -> str:
        await view.cluster.call(commit_offsets, new, begun)
        _waiting.forget(handle)
        return f"The group {new} begins at these offsets. Start the new version with it now."

    now = view.state.groups[old].committed if old in view.state.groups else {}
    refused = "" if wanted else f"The group {old} has no offsets: nothing says what it reads."
    return Plan(
        title=f"Replay {old} as {new}",
        verb=RESET,
        resource=f"group:{new}",
        apply=apply,
        sentence=f"The group {old} stays as it is. The new group reads the same partitions from that moment on.",
        columns=("Partition", "The old group stands at", "The new one begins at"),
        rows=[
            (
                f"{topic}-{number}",
                f"{now[topic, number]:,}" if (topic, number) in now else "none",
                f"{offset:,}",
            )
            for (topic, number), offset in sorted(wanted.items())
        ],
        commands=[
            f"ottla consumer-groups --bootstrap-server {view.cluster.bootstrap} --group {shlex.quote(new)}"
            f" --reset-offsets --topic {shlex.quote(topic)} --to-datetime {shlex.quote(form.get('moment', ''))}"
            " --execute"
            for topic in sorted({topic for topic, _ in wanted})
        ],
        refused=f"The group {new} has offsets already: choose another name." if there else refused,
        button="Make the group",
        carried={**form, HANDLE: handle},
        # Where the old group stands moves on while one looks at the plan.
        agreed=[[*each, offset] for each, offset in sorted(wanted.items())],
        then=view.url("replay", id=old, new=new),
    )
