"""Share groups and groups of Streams applications."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ottla.admin.partitions import EARLIEST, LATEST, offsets_at
from ottla.admin.share_groups import alter_share_offsets, describe_share_groups, share_offsets
from ottla.admin.streams_groups import describe_streams_group
from ottla.console.plans import Form, Plan, change
from ottla.console.security.roles import RESET
from ottla.console.web import BadInput, NotFound, Values, View, page
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.streams_groups import StreamsGroup
    from ottla.console.sampler.state import GroupState


def _of_kind(view: View, kind: str) -> GroupState:
    """The group of the query, if it is of this kind."""
    group = view.group()
    if group.kind != kind:
        raise NotFound(f"'{group.group_id}' is not a {kind.lower()} group but a {group.kind.lower()} group.")
    return group


@page("/share", "share.html", resource="group:{id}", live=("rows",), menu="groups")
async def share(view: View) -> Values:
    """A share group: start offsets, lag, members."""
    group = _of_kind(view, "Share")
    found = (await view.cluster.call(describe_share_groups, [group.group_id])).get(group.group_id)
    if found is None or isinstance(found, ApiException):
        raise found or NotFound(f"There is no share group '{group.group_id}'.")
    offsets = await view.cluster.call(share_offsets, group.group_id)
    return {
        "group": group,
        "described": found[1],
        "offsets": offsets,
        "may_reset": view.may(RESET, f"group:{group.group_id}"),
        "crumbs": [("Groups", view.url("groups"))],
        "commands": [
            f"ottla share-groups --bootstrap-server {view.cluster.bootstrap} --describe --group"
            f" {shlex.quote(group.group_id)}"
        ],
    }


@change("share.reset", RESET)
async def plan_reset(view: View, form: Form) -> Plan:
    """Set the start offsets of a share group to the beginning or the end of its partitions."""
    name = form.get("group", "")
    target = form.get("target", "")
    if target not in ("earliest", "latest"):
        raise BadInput("Choose the oldest records or the end.")
    now = await view.cluster.call(share_offsets, name)
    moment = EARLIEST if target == "earliest" else LATEST
    wanted = await view.cluster.call(offsets_at, list(now), moment)
    found = (await view.cluster.call(describe_share_groups, [name])).get(name)
    members = len(found[1].members) if isinstance(found, tuple) else 0

    async def apply() -> str:
        await view.cluster.call(alter_share_offsets, name, wanted)
        return f"The share group {name} starts at its new offsets."

    return Plan(
        title=f"Reset {name}",
        verb=RESET,
        resource=f"group:{name}",
        apply=apply,
        columns=("Partition", "Starts now at", "Then"),
        rows=[
            (f"{topic}-{number}", f"{now[topic, number].start_offset:,}", f"{offset:,}")
            for (topic, number), offset in sorted(wanted.items())
        ],
        commands=[
            f"ottla share-groups --bootstrap-server {view.cluster.bootstrap} --group {shlex.quote(name)}"
            f" --reset-offsets --all-topics --to-{target} --execute"
        ],
        refused=f"The group has {members} members: stop its consumers first." if members else "",
        button="Set the offsets",
        then=view.url("share", id=name),
    )


@page("/streams", "streams.html", resource="group:{id}", live=("rows",), menu="groups")
async def streams(view: View) -> Values:
    """A Streams group: subtopologies with their topics, tasks by member."""
    group = _of_kind(view, "Streams")
    _, described = await view.cluster.call(describe_streams_group, group.group_id)
    return {
        "group": group,
        "described": described,
        "subtopologies": (described.topology.subtopologies or []) if described.topology else [],
        "tasks": _tasks(described),
        "crumbs": [("Groups", view.url("groups"))],
        "commands": [
            f"ottla streams-groups --bootstrap-server {view.cluster.bootstrap} --describe --group"
            f" {shlex.quote(group.group_id)}"
        ],
    }


def _tasks(group: StreamsGroup) -> dict[str, list[tuple[str, str]]]:
    """For each member its tasks in words, by role."""
    found: dict[str, list[tuple[str, str]]] = {}
    for member in group.members:
        rows = []
        for role, tasks in (
            ("active", member.assignment.active_tasks),
            ("standby", member.assignment.standby_tasks),
            ("warm-up", member.assignment.warmup_tasks),
        ):
            words = [f"{each.subtopology_id}_{number}" for each in tasks for number in each.partitions]
            if words:
                rows.append((role, ", ".join(words)))
        found[member.member_id] = rows
    return found
