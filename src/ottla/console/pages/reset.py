"""Offsets of groups: reset to a plan, a new group at offsets, deletion of groups and of their offsets."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from ottla.admin.groups import Group, commit_offsets, committed_offsets, delete_groups, describe_groups
from ottla.admin.partitions import EARLIEST, LATEST, Partition, leaders, offsets_at
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import parse_since
from ottla.console.plans import Form, Plan, change
from ottla.console.render import counted
from ottla.console.security.roles import RESET
from ottla.console.waiting import HANDLE, Waiting
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

TARGETS: Final = (
    ("earliest", "The oldest records"),
    ("latest", "The end: skip everything"),
    ("time", "A time"),
    ("offset", "An offset"),
    ("shift", "Forward or back by a number of records"),
    ("group", "Where another group stands"),
)


@page("/group/reset", "reset.html", verb=RESET, resource="group:{id}", menu="groups")
async def reset(view: View) -> Values:
    """The form of a reset."""
    group = view.group()
    return {
        "group": group,
        "topics": group.topics,
        "targets": TARGETS,
        "crumbs": [("Groups", view.url("groups")), (group.group_id, view.url("group", id=group.group_id))],
    }


@page("/t/{topic}/new-group", "new_group.html", verb=RESET, resource="group:*", menu="topics")
async def new_group(view: View) -> Values:
    """The form of a new group at offsets."""
    topic = view.topic()
    crumbs = [("Topics", view.url("topics")), (topic.name, view.url("t", topic.name))]
    return {"topic": topic, "targets": TARGETS[:4], "crumbs": crumbs}


_waiting: Final = Waiting[dict[Partition, int]]()
"""The offsets of plans: ends and times relative to now are other ones when a person agrees."""


def _wanted(
    cluster: Cluster, group: str, form: Form, planned: dict[Partition, int] | None
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """The committed offsets now, and what they shall be: what was planned, as far as it is still in the log."""
    now = {partition: each.offset for partition, each in committed_offsets(cluster, group).items()}
    topic = form.get("topic", "")
    partitions = sorted(leaders(cluster, [topic])) if topic else sorted(now)
    if form.get("partition", "").strip():
        number = whole(form["partition"], "Partition")
        partitions = [each for each in partitions if each[1] == number]
    if not partitions:
        raise BadInput("There is no partition to reset: the group has committed nothing there.")
    starts, ends = offsets_at(cluster, partitions, EARLIEST), offsets_at(cluster, partitions, LATEST)
    match "planned" if planned is not None else form.get("target", ""):
        case "planned":
            wanted = {each: planned[each] for each in partitions if planned and each in planned}
        case "earliest":
            wanted = starts
        case "latest":
            wanted = ends
        case "offset":
            wanted = dict.fromkeys(partitions, whole(form.get("offset", ""), "Offset"))
        case "shift":
            shift = whole(form.get("shift", ""), "Number of records", -(2**62), 2**62)
            wanted = {each: now[each] + shift for each in partitions if each in now}
        case "time":
            found = offsets_at(cluster, partitions, _moment(form.get("since", "")))
            wanted = {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
        case "group":
            other = committed_offsets(cluster, form.get("other", ""))
            wanted = {each: other[each].offset for each in partitions if each in other}
            if not wanted:
                raise BadInput(
                    f"The group '{form.get('other', '')[:80]}' has no offsets for these partitions."
                )
        case _:
            raise BadInput("Choose where the group shall stand.")
    return now, {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}


def _moment(text: str) -> int:
    try:
        return parse_since(text)
    except (UsageProblem, ValueError):
        raise BadInput(
            f"'{text[:40]}' is not a time: expected 10m, 2h, 1d, or 2026-01-31T12:00:00 in UTC."
        ) from None


def _members(cluster: Cluster, group: str) -> tuple[str, int]:
    """A group's state and number of members; Dead for one that does not exist."""
    found = describe_groups(cluster, [group]).get(group)
    if isinstance(found, Group):
        return found.state, len(found.members)
    if isinstance(found, ApiException) and found.code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise found
    return "Dead", 0


def _command(view: View, group: str, form: Form) -> str:
    flags = {
        "earliest": "--to-earliest",
        "latest": "--to-latest",
        "offset": f"--to-offset {shlex.quote(form.get('offset', ''))}",
        "shift": f"--shift-by {shlex.quote(form.get('shift', ''))}",
        "time": f"--to-datetime {shlex.quote(form.get('since', ''))}",
        "group": "--from-file FILE",
    }
    topic, number = form.get("topic", ""), form.get("partition", "").strip()
    scope = f"--topic {shlex.quote(topic + (f':{number}' if number else ''))}" if topic else "--all-topics"
    return (
        f"ottla consumer-groups --bootstrap-server {view.cluster.bootstrap} --group {shlex.quote(group)}"
        f" --reset-offsets {scope} {flags.get(form.get('target', ''), '')} --execute"
    )


@change("group.reset", RESET)
async def plan_reset(view: View, form: Form) -> Plan:
    """Set the committed offsets of a group."""
    group = form.get("group", "").strip()
    if not group:
        raise BadInput("The group needs a name.")
    view.require(RESET, f"group:{group}")
    state, members = await view.cluster.call(_members, group)
    handle = form.get(HANDLE, "")
    planned = _waiting.get(handle, group)
    now, wanted = await view.cluster.call(_wanted, group, form, planned)
    if planned is None:
        handle = _waiting.put(wanted, group)
    rows = [
        (
            f"{topic}-{number}",
            _shown(now.get((topic, number))),
            f"{offset:,}",
            _moved(now.get((topic, number)), offset),
        )
        for (topic, number), offset in sorted(wanted.items())
    ]
    refused = ""
    if members:
        count = "1 member" if members == 1 else f"{members} members"
        refused = (
            f"The group has {count} and is {state}: stop its consumers first."
            " Offsets can only be set while nobody reads."
        )

    async def apply() -> str:
        await view.cluster.call(commit_offsets, group, wanted)
        _waiting.forget(handle)
        return f"The group {group} stands at its new offsets on {counted(len(wanted), 'partition')}."

    fresh = not now and state == "Dead"
    return Plan(
        title=f"{'New group' if fresh else 'Reset'} {group}",
        verb=RESET,
        resource=f"group:{group}",
        apply=apply,
        sentence=f"{counted(len(wanted), 'partition')}: these offsets are committed.",
        columns=("Partition", "Now", "Then", "Difference"),
        rows=rows,
        commands=[_command(view, group, form)],
        refused=refused,
        button="Set the offsets",
        carried={**form, HANDLE: handle},
        then=view.url("group", id=group),
    )


def _shown(offset: int | None) -> str:
    return "none" if offset is None else f"{offset:,}"


def _moved(before: int | None, after: int) -> str:
    if before is None:
        return ""
    return "stays" if after == before else f"{after - before:+,}"


@change("group.delete", RESET)
async def plan_delete(view: View, form: Form) -> Plan:
    """Delete a group with its offsets."""
    group = form.get("group", "")
    state, members = await view.cluster.call(_members, group)
    offsets = await view.cluster.call(committed_offsets, group)

    async def apply() -> str:
        codes = await view.cluster.call(delete_groups, [group])
        code = codes.get(group, ErrorCode.NONE)
        if code:
            raise ApiException(code, f"The group {group} was not deleted: {code.name}.")
        return f"The group {group} is deleted."

    return Plan(
        title=f"Delete {group}",
        verb=RESET,
        resource=f"group:{group}",
        apply=apply,
        sentence=f"The group and its {len(offsets)} committed offsets go. Records stay.",
        columns=("Partition", "Committed"),
        rows=[(f"{topic}-{number}", f"{each.offset:,}") for (topic, number), each in offsets.items()],
        commands=[
            f"ottla consumer-groups --bootstrap-server {view.cluster.bootstrap} --delete --group {shlex.quote(group)}"
        ],
        refused=f"The group has {members} members and is {state}: stop its consumers first."
        if members
        else "",
        danger=True,
        button="Delete the group",
        then=view.url("groups"),
    )
