"""Share groups and groups of Streams applications."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.admin.partitions import EARLIEST, LATEST, Partition, offsets_at
from ottla.admin.share_groups import alter_share_offsets, describe_share_groups, share_offsets
from ottla.admin.streams_groups import describe_streams_group
from ottla.console.plans import Form, Plan, change
from ottla.console.reader.share_state import KEPT_S, STATE_TOPIC, Delivered, deliveries
from ottla.console.security.roles import RESET
from ottla.console.waiting import HANDLE, Waiting
from ottla.console.web import BadInput, NotFound, Values, View, page
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.streams_groups import StreamsGroup
    from ottla.console.sampler.state import GroupState


_MOST_KEPT: Final = 50
_waiting: Final = Waiting[dict[Partition, int]]()
"""The offsets of plans: the end moves on while a person looks at one."""


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
    delivered, why = await _delivered(view, group.group_id)
    return {
        "group": group,
        "described": found[1],
        "offsets": offsets,
        "delivered": delivered,
        "not_known": why,
        "may_reset": view.may(RESET, f"group:{group.group_id}"),
        "crumbs": [("Groups", view.url("groups"))],
        "commands": [
            f"ottla share-groups --bootstrap-server {view.cluster.bootstrap} --describe --group"
            f" {shlex.quote(group.group_id)}"
        ],
    }


async def _delivered(view: View, name: str) -> tuple[dict[Partition, Delivered], str]:
    """What became of the records of a share group by partition, and why that is not known."""
    topic = view.state.topics.get(STATE_TOPIC)
    if topic is None:
        return {}, ""
    kept = view.cluster.deliveries.get(name)
    if kept is None or kept[0] + KEPT_S < time.monotonic():
        try:
            found, complete = await deliveries(view.cluster.reader, name, topic.partitions)
        except ApiException as error:
            return {}, f"The state of deliveries cannot be read: {error.message or error.code.name}"
        if len(view.cluster.deliveries) >= _MOST_KEPT:
            view.cluster.deliveries.clear()
        kept = view.cluster.deliveries[name] = time.monotonic(), found, complete
    names = {each.topic_id: each.name for each in view.state.topics.values()}
    by_name = {
        (names[topic_id], number): each
        for (raw, number), each in kept[1].items()
        if (topic_id := str(UUID(bytes=raw))) in names
    }
    return by_name, "" if kept[2] else "The state is long: older deliveries are not counted."


@change("share.reset", RESET)
async def plan_reset(view: View, form: Form) -> Plan:
    """Set the start offsets of a share group to the beginning or the end of its partitions."""
    name = form.get("group", "")
    target = form.get("target", "")
    if target not in ("earliest", "latest"):
        raise BadInput("Choose the oldest records or the end.")
    now = await view.cluster.call(share_offsets, name)
    moment = EARLIEST if target == "earliest" else LATEST
    handle = form.get(HANDLE, "")
    planned = _waiting.get(handle, name)
    wanted = planned if planned is not None else await view.cluster.call(offsets_at, list(now), moment)
    if planned is None:
        handle = _waiting.put(wanted, name)
    found = (await view.cluster.call(describe_share_groups, [name])).get(name)
    members = len(found[1].members) if isinstance(found, tuple) else 0

    async def apply() -> str:
        await view.cluster.call(alter_share_offsets, name, wanted)
        _waiting.forget(handle)
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
        carried={**form, HANDLE: handle},
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
