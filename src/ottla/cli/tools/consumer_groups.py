"""`ottla consumer-groups`: what kafka-consumer-groups does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.groups import (
    CLASSIC,
    CONSUMER,
    Group,
    Member,
    committed_offsets,
    delete_groups,
    describe_groups,
    list_consumer_groups,
)
from ottla.admin.partitions import LATEST, Partition, leaders, offsets_at
from ottla.cli.tools.base import Session, exactly_one, not_with, only_with, tool
from ottla.cli.tools.columns import MISSING, row, shown, widest
from ottla.cli.tools.group_tool import (
    CONSUMER_STATES,
    assignment_text,
    delete_group_offsets,
    group_options,
    json_names,
    parse_words,
    run_group_tool,
    show_deleted,
)
from ottla.cli.tools.partition_words import parse_partitions
from ottla.cli.tools.reset_offsets import RESET_OPTIONS, ResetFlags, reset_offsets
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class ConsumerGroupsFlags(ResetFlags):
    """The flags of `ottla consumer-groups`."""

    validate_regex: str | None
    type: str | None


@tool(
    "consumer-groups",
    *group_options(
        describe="Show groups: offsets and lag, members, or state.",
        reset="Set groups back or forth; see the --to flags.",
        offsets="Describe: offsets and lag, as without a flag.",
        delete_offsets="Delete a group's offsets of topics.",
    ),
    click.option("--validate-regex", metavar="REGEX", help="Check a regular expression."),
    click.option(
        "--topic", multiple=True, metavar="NAME[:N,N...]", help="The topic, or some of its partitions."
    ),
    click.option("--all-topics", is_flag=True, help="All topics that the group has offsets for."),
    click.option(
        "--type",
        "type",
        is_flag=False,
        flag_value="",
        metavar="[TYPE,...]",
        help="List: show types, or only these.",
    ),
    *RESET_OPTIONS,
    click.option("--export", is_flag=True, help="Print the new offsets as CSV."),
)
def consumer_groups(session: Session, flags: ConsumerGroupsFlags) -> None:
    """List, describe, reset and delete consumer groups."""
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
        "validate_regex": _validate_regex,
    }
    run_group_tool(session, flags, _check, actions)


def _check(flags: ConsumerGroupsFlags, action: str) -> None:
    if action == "reset_offsets":
        exactly_one(flags, "group", "all_groups")
    not_with(flags, "topic", "list", "describe", "delete")
    if action == "delete_offsets" and not (flags.group and flags.topic):
        raise click.UsageError("--delete-offsets needs --group and --topic")
    only_with(flags, "type", "list")


def _delete(session: Session, flags: ConsumerGroupsFlags) -> None:
    show_deleted(session, "consumer", delete_groups(session.cluster, _chosen(session, flags)))


def _reset(session: Session, flags: ConsumerGroupsFlags) -> None:
    reset_offsets(session, flags, _chosen(session, flags))


def _validate_regex(session: Session, flags: ConsumerGroupsFlags) -> None:
    expression = flags.validate_regex or ""
    try:
        re.compile(expression)
        problem = None
    except re.error as error:
        problem = str(error)
    verdict = "is valid" if problem is None else f"is invalid: {problem}"
    document = {"regex": expression, "valid": problem is None, "problem": problem}
    session.result(document, [f"The regular expression `{expression}` {verdict}."])


def _chosen(session: Session, flags: ConsumerGroupsFlags) -> list[str]:
    if flags.all_groups:
        return [group.group_id for group in list_consumer_groups(session.cluster)]
    return list(flags.group)


def _list(session: Session, flags: ConsumerGroupsFlags) -> None:
    states = parse_words(flags.state, CONSUMER_STATES, "state") if flags.state else None
    types = parse_words(flags.type, (CLASSIC, CONSUMER), "types") if flags.type else None
    groups = [
        group
        for group in list_consumer_groups(session.cluster)
        if (states is None or group.state in states) and (types is None or group.type in types)
    ]
    documents = [{"group": each.group_id, "type": each.type, "state": each.state} for each in groups]
    if flags.state is None and flags.type is None:
        session.result(documents, [group.group_id for group in groups])
        return
    widths = [widest(15, [group.group_id for group in groups]) + 10]
    columns = [("GROUP", "group_id")]
    for name, title in (("type", "TYPE"), ("state", "STATE")):
        if getattr(flags, name) is not None:
            columns.append((title, name))
            widths.append(20)
    lines = [row([title for title, _ in columns], widths)]
    lines += [row([getattr(group, name) for _, name in columns], widths) for group in groups]
    session.result(documents, lines)


def _describe(session: Session, flags: ConsumerGroupsFlags) -> None:
    groups: list[Group] = []
    for name, group in describe_groups(session.cluster, _chosen(session, flags)).items():
        if isinstance(group, ApiException):
            session.error(f"group '{name}': {group.message}")
        elif group.state == "Dead":
            session.error(f"group '{name}' does not exist")
        else:
            groups.append(group)
    if flags.members:
        show = _show_members
    elif flags.state is not None:
        show = _show_state
    else:
        show = _show_offsets
    documents: list[object] = []
    for group in groups:
        _note_state(session, group)
        documents += show(session, group, flags.verbose)
    if session.as_json:
        session.dump(documents)


def _note_state(session: Session, group: Group) -> None:
    if group.state == "Empty":
        session.warn(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in _REBALANCING:
        session.warn(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")


def _show_offsets(session: Session, group: Group, verbose: bool) -> list[object]:
    rows = _offset_rows(session, group)
    titles = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    titles += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    widths = [widest(15, [group.group_id]), widest(15, [each[1] for each in rows]), 10, 15, 15, 15, 15]
    widths += [widest(15, [each[7] for each in rows]), widest(15, [each[8] for each in rows]), 0]
    kept = [index for index in range(len(titles)) if verbose or titles[index] != "LEADER-EPOCH"]
    if rows:
        session.print()
        session.rows(*_columns(kept, titles, rows, widths))
    return [dict(zip(json_names(titles), cells, strict=True)) for cells in rows]


def _columns(
    kept: list[int], titles: list[str], rows: list[list[object]], widths: list[int]
) -> tuple[list[str], list[list[object]], list[int]]:
    """A table with only some of its columns."""
    return (
        [titles[index] for index in kept],
        [[cells[index] for index in kept] for cells in rows],
        [widths[index] for index in kept],
    )


def _offset_rows(session: Session, group: Group) -> list[list[object]]:
    committed = committed_offsets(session.cluster, group.group_id)
    assigned = [(member, sorted(member.assignment)) for member in group.members if member.assignment]
    assigned.sort(key=lambda pair: -len(pair[1]))
    taken = {partition for _, partitions in assigned for partition in partitions}
    free = [partition for partition in committed if partition not in taken]
    ends = _ends(session.cluster, [*taken, *free])
    rows: list[list[object]] = []
    for member, partitions in [*assigned, (None, free)]:
        for topic, number in partitions:
            known, end = committed.get((topic, number)), ends.get((topic, number))
            lag = None if known is None or end is None else end - known.offset
            cells: list[object] = [group.group_id, topic, number]
            cells += [known and known.leader_epoch, known and known.offset, end, lag]
            cells += [MISSING] * 3 if member is None else [member.member_id, member.host, member.client_id]
            rows.append(cells)
    return rows


def _ends(cluster: Cluster, partitions: list[Partition]) -> dict[Partition, int]:
    """The end offsets of partitions; those without a leader are left out."""
    known = leaders(cluster, (topic for topic, _ in partitions))
    return offsets_at(cluster, [each for each in partitions if known.get(each, -1) >= 0], LATEST)


def _show_members(session: Session, group: Group, verbose: bool) -> list[object]:
    members = group.members
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    table: list[list[object]] = [
        [group.group_id, each.member_id, each.instance_id, each.host, each.client_id, len(each.assignment)]
        for each in members
    ]
    least = [15, 15, 17, 15, 15, 15]
    widths = [widest(width, [cells[index] for cells in table]) for index, width in enumerate(least)]
    widths[5] = 15
    if verbose:
        more = [_assignment_cells(group, member) for member in members]
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]
        table = [cells + extra for cells, extra in zip(table, more, strict=True)]
        widths += [15, widest(20, [cells[7] for cells in table]), 15]
        widths += [widest(20, [cells[9] for cells in table]), 0]
    kept = [index for index, title in enumerate(titles) if _is_shown(title, members)]
    session.print()
    # Kafka ends the columns that are always there with a space.
    session.rows(*_columns(kept, titles, table, widths), end="" if verbose else " ")
    return [dict(zip(json_names(titles), cells, strict=True)) for cells in table]


def _is_shown(title: str, members: list[Member]) -> bool:
    if title == "GROUP-INSTANCE-ID":
        return any(member.instance_id for member in members)
    if title == "UPGRADED":
        return {True, False} <= {member.upgraded for member in members}
    return True


def _assignment_cells(group: Group, member: Member) -> list[object]:
    upgraded = None if member.upgraded is None else str(member.upgraded).lower()
    return [
        shown(member.epoch),
        assignment_text(member.assignment),
        shown(group.target_epoch),
        assignment_text(member.target),
        shown(upgraded),
    ]


def _show_state(session: Session, group: Group, verbose: bool) -> list[object]:
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    columns: list[tuple[str, object, int]] = [
        ("GROUP", group.group_id, widest(15, [group.group_id])),
        ("COORDINATOR (ID)", coordinator, widest(25, [coordinator])),
        ("ASSIGNMENT-STRATEGY", group.assignor or MISSING, 20),
        ("STATE", group.state, 20),
    ]
    if verbose:
        columns.append(("GROUP-EPOCH", group.epoch, 15))
        columns.append(("TARGET-ASSIGNMENT-EPOCH", group.target_epoch, 25))
    columns.append(("#MEMBERS", len(group.members), 0))
    titles, cells, widths = (list(part) for part in zip(*columns, strict=True))
    session.print()
    session.rows(titles, [cells], widths)
    document = {
        "group": group.group_id,
        "coordinator": {"id": group.coordinator.id, "address": group.coordinator.address},
        "assignment_strategy": group.assignor or None,
        "state": group.state,
        "group_epoch": group.epoch,
        "target_assignment_epoch": group.target_epoch,
        "members": len(group.members),
    }
    return [document]


def _delete_offsets(session: Session, flags: ConsumerGroupsFlags) -> None:
    (group_id,) = flags.group[-1:]
    partitions = parse_partitions(session.cluster, flags.topic)
    delete_group_offsets(session, group_id, partitions)
