"""`ottla share-groups`: what kafka-share-groups does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ottla.admin.connection import Node
from ottla.admin.errors import describe_error
from ottla.admin.groups import ListedGroup, delete_groups, list_groups
from ottla.admin.partitions import EARLIEST, LATEST, by_leader, leaders, offsets_at
from ottla.admin.share_groups import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_groups,
    share_offsets,
)
from ottla.cli.tools.base import Session, exactly_one, not_with, require, tool
from ottla.cli.tools.columns import widest
from ottla.cli.tools.group_tool import (
    GroupFlags,
    assignment_text,
    group_options,
    not_deletable,
    parse_words,
    run_group_tool,
    show_deleted,
    show_plans,
    show_table,
    state_lines,
)
from ottla.cli.tools.partition_words import parse_partitions
from ottla.cli.tools.reset_offsets import offsets_since
from ottla.cli.tools.values import parse_datetime
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.share_groups import ShareGroup

_STATES: Final = ("Stable", "Dead", "Empty")


class ShareGroupsFlags(GroupFlags):
    """The flags of `ottla share-groups`."""

    topic: tuple[str, ...]
    all_topics: bool
    to_earliest: bool
    to_latest: bool
    to_datetime: str | None


@tool(
    "share-groups",
    *group_options(
        describe="Show groups: offsets, members, or state.",
        reset="Set the group's start offsets; see the --to flags.",
        offsets="Describe: the offsets, as without a flag.",
        delete_offsets="Delete a group's offsets of topics.",
    ),
    click.option(
        "--topic", multiple=True, metavar="NAME[:N,N...]", help="The topic, or some of its partitions."
    ),
    click.option("--all-topics", is_flag=True, help="All topics that the group has offsets for."),
    click.option("--to-earliest", is_flag=True, help="To the oldest record."),
    click.option("--to-latest", is_flag=True, help="To the end."),
    click.option(
        "--to-datetime", metavar="YYYY-MM-DDTHH:MM:SS.sss", help="To the first record from then on."
    ),
)
def share_groups(session: Session, flags: ShareGroupsFlags) -> None:
    """List, describe, reset and delete share groups."""
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
    }
    run_group_tool(session, flags, _check, actions)


def _check(flags: ShareGroupsFlags, action: str) -> None:
    not_with(flags, "topic", "list", "describe", "delete")
    if action in ("delete_offsets", "reset_offsets"):
        require(flags, "group")
    if action == "delete_offsets":
        require(flags, "topic")
    if action == "reset_offsets":
        exactly_one(flags, "topic", "all_topics")
        exactly_one(flags, "to_earliest", "to_latest", "to_datetime")
        exactly_one(flags, "dry_run", "execute")


def _share_groups(cluster: Cluster) -> list[ListedGroup]:
    return [group for group in list_groups(cluster) if group.type == "Share"]


def _list(session: Session, flags: ShareGroupsFlags) -> None:
    states = parse_words(flags.state, _STATES, "state") if flags.state else None
    groups = [group for group in _share_groups(session.cluster) if states is None or group.state in states]
    documents = [{"group": group.group_id, "state": group.state} for group in groups]
    if flags.state is None:
        session.result(documents, [group.group_id for group in groups])
        return
    session.result(documents, state_lines(groups))


def _describe(session: Session, flags: ShareGroupsFlags) -> None:
    everyone = _share_groups(session.cluster) if flags.all_groups else []
    names = [*flags.group, *(group.group_id for group in everyone)]
    documents: list[object] = []
    for name, known in describe_share_groups(session.cluster, names).items():
        if isinstance(known, ApiException):
            session.error(f"group '{name}': {known.message}")
            continue
        node, described = known
        if (flags.members or flags.state is not None) and described.group_state == "Empty":
            session.warn(f"\nShare group '{name}' has no active members.")
        if flags.members:
            documents += _show_members(session, described, flags.verbose)
        elif flags.state is not None:
            documents += _show_state(session, node, described, flags.verbose)
        else:
            documents += _show_offsets(session, name, flags.verbose)
    if session.as_json:
        session.dump(documents)


def _show(
    session: Session, titles: list[str], rows: list[list[object]], widths: list[int]
) -> list[dict[str, object]]:
    session.print()
    return show_table(session, titles, rows, widths)


def _show_members(session: Session, described: ShareGroup, verbose: bool) -> list[dict[str, object]]:
    members = sorted(described.members, key=lambda member: str(member.member_id))
    if not members:
        return []
    rows: list[list[object]] = []
    for each in members:
        assigned = [
            (topic.topic_name, number)
            for topic in each.assignment.topic_partitions
            for number in topic.partitions
        ]
        cells = [described.group_id, each.member_id, each.client_host, each.client_id, len(assigned)]
        rows.append([*cells, *([each.member_epoch] if verbose else []), assignment_text(assigned, "")])
    titles = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [widest(15, [cells[index] for cells in rows]) for index in range(4)] + [12]
    if verbose:
        titles.append("MEMBER-EPOCH")
        widths.append(13)
    return _show(session, [*titles, "ASSIGNMENT"], rows, [*widths, 0])


def _show_state(
    session: Session, node: Node, described: ShareGroup, verbose: bool
) -> list[dict[str, object]]:
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    columns: list[tuple[str, object, int]] = [
        ("GROUP", described.group_id, widest(15, [described.group_id])),
        ("COORDINATOR (ID)", coordinator, widest(25, [coordinator])),
        ("STATE", described.group_state, 15),
    ]
    if verbose:
        columns += [
            ("GROUP-EPOCH", described.group_epoch, 12),
            ("ASSIGNMENT-EPOCH", described.assignment_epoch, 17),
        ]
    columns.append(("#MEMBERS", len(described.members), 0))
    titles, cells, widths = (list(part) for part in zip(*columns, strict=True))
    return _show(session, titles, [cells], widths)


def _show_offsets(session: Session, group_id: str, verbose: bool) -> list[dict[str, object]]:
    offsets = share_offsets(session.cluster, group_id)
    if not offsets:
        session.print(f"\nShare group '{group_id}' has no offset information.")
        return []
    rows: list[list[object]] = []
    for (topic, number), each in offsets.items():
        known = each.start_offset >= 0
        epoch = each.leader_epoch if known and each.leader_epoch >= 0 else None
        lag = each.lag if known and each.lag >= 0 else None
        start = each.start_offset if known else None
        rows.append([group_id, topic, number, *([epoch] if verbose else []), start, lag])
    titles = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "START-OFFSET", "LAG"]
    widths = [widest(15, [group_id]), widest(15, [cells[1] for cells in rows]), 10]
    return _show(session, titles, rows, [*widths, *([13] if verbose else []), 13, 0])


def _delete(session: Session, flags: ShareGroupsFlags) -> None:
    listed = {group.group_id: group for group in _share_groups(session.cluster)}
    names = list(listed) if flags.all_groups else list(dict.fromkeys(flags.group))
    results = not_deletable(listed, names)
    results |= delete_groups(session.cluster, [name for name in names if name not in results])
    show_deleted(session, "share", results)


def _reset(session: Session, flags: ShareGroupsFlags) -> None:
    (group_id,) = flags.group[-1:]
    known = describe_share_groups(session.cluster, [group_id])[group_id]
    if isinstance(known, ApiException):
        if known.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise known
    elif known[1].group_state not in ("Empty", "Dead"):
        raise ApiException(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group_id}' is not empty.")
    if flags.topic:
        partitions = parse_partitions(session.cluster, flags.topic)
    else:
        partitions = list(share_offsets(session.cluster, group_id))
    by_leader(leaders(session.cluster, (topic for topic, _ in partitions)), partitions)
    if flags.to_datetime is not None:
        plan = offsets_since(session, partitions, parse_datetime(flags.to_datetime))
    else:
        plan = offsets_at(session.cluster, partitions, EARLIEST if flags.to_earliest else LATEST)
    if flags.execute:
        alter_share_offsets(session.cluster, group_id, plan)
    show_plans(session, {group_id: plan})


def _delete_offsets(session: Session, flags: ShareGroupsFlags) -> None:
    (group_id,) = flags.group[-1:]
    answer = delete_share_offsets(session.cluster, group_id, dict.fromkeys(flags.topic))
    rows: list[list[object]] = []
    for each in sorted(answer.responses, key=lambda each: str(each.topic_name)):
        failed = each.error_code != ErrorCode.NONE
        described = describe_error(each.error_code, each.error_message) if failed else ""
        rows.append([each.topic_name, f"Error: {described}" if failed else "Successful"])
        session.exit_code |= failed
    documents = _show(session, ["TOPIC", "STATUS"], rows, [widest(15, [cells[0] for cells in rows]), 0])
    if session.as_json:
        session.dump(documents)
