"""`ottla share-groups`: what kafka-share-groups does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, only_with, require, tool
from ottla.cli.tools.columns import row, widest
from ottla.cli.tools.failures import describe as describe_error
from ottla.cli.tools.failures import raise_for
from ottla.cli.tools.group_admin import ListedGroup, delete_groups, list_groups, parse_words
from ottla.cli.tools.group_output import (
    Plan,
    assignment_text,
    check_one_view,
    json_names,
    show_plans,
    tell_deleted,
)
from ottla.cli.tools.partitions import (
    EARLIEST,
    LATEST,
    Partition,
    by_leader,
    by_topic,
    leaders,
    offsets_at,
    parse_partitions,
)
from ottla.cli.tools.reset_offsets import offsets_since
from ottla.cli.tools.values import parse_datetime
from ottla.client.connection import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_ACTIONS: Final = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
_STATES: Final = ("Stable", "Dead", "Empty")


@tool(
    "share-groups",
    click.option("--list", "list", is_flag=True, help="List the groups."),
    click.option("--describe", is_flag=True, help="Show groups: offsets, members, or state."),
    click.option("--delete", is_flag=True, help="Delete groups."),
    click.option("--reset-offsets", is_flag=True, help="Let a group begin elsewhere; see the --to flags."),
    click.option("--delete-offsets", is_flag=True, help="Forget a group's offsets of topics."),
    click.option("--group", multiple=True, metavar="NAME", help="The group; may be repeated."),
    click.option("--all-groups", is_flag=True, help="All groups."),
    click.option(
        "--topic", multiple=True, metavar="NAME[:N,N...]", help="The topic, or some of its partitions."
    ),
    click.option("--all-topics", is_flag=True, help="All topics that the group has offsets for."),
    click.option("--members", is_flag=True, help="Describe: the members."),
    click.option("--offsets", is_flag=True, help="Describe: the offsets, as without a flag."),
    click.option(
        "--state", is_flag=False, flag_value="", metavar="[STATE,...]", help="The state, or only these."
    ),
    click.option("--verbose", is_flag=True, help="Describe: more columns."),
    click.option("--timeout", type=int, metavar="MS", help="How long the cluster may take."),
    click.option("--to-earliest", is_flag=True, help="To the oldest record."),
    click.option("--to-latest", is_flag=True, help="To the end."),
    click.option(
        "--to-datetime", metavar="YYYY-MM-DDTHH:MM:SS.sss", help="To the first record from then on."
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be reset."),
    click.option("--execute", is_flag=True, help="Do it."),
)
def share_groups(session: Session, flags: Flags) -> None:
    """List, describe, reset and delete share groups."""
    action = exactly_one(flags, *_ACTIONS)
    _check(flags, action)
    if flags.timeout is not None:
        session.properties["default.api.timeout.ms"] = str(flags.timeout)
    if action == "list":
        _list(session, flags)
    elif action == "describe":
        _describe(session, flags)
    elif action == "delete":
        _delete(session, flags)
    elif action == "reset_offsets":
        _reset(session, flags)
    else:
        _delete_offsets(session, flags)


def _check(flags: Flags, action: str) -> None:
    if action in ("describe", "delete"):
        exactly_one(flags, "group", "all_groups")
    not_with(flags, "group", "list")
    not_with(flags, "topic", "list", "describe", "delete")
    only_with(flags, "state", "list", "describe")
    if action == "describe":
        check_one_view(flags)
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


def _list(session: Session, flags: Flags) -> None:
    states = parse_words(flags.state, _STATES, "state") if flags.state else None
    groups = [group for group in _share_groups(session.cluster) if states is None or group.state in states]
    documents = [{"group": group.group_id, "state": group.state} for group in groups]
    if flags.state is None:
        session.tell(documents, [group.group_id for group in groups])
        return
    widths = [widest(15, [group.group_id for group in groups]), 0]
    rows = [("GROUP", "STATE"), *((group.group_id, group.state) for group in groups)]
    session.tell(documents, [row(cells, widths) for cells in rows])


def _described(cluster: Cluster, names: list[str]) -> dict[str, tuple[Node, Any] | ApiException]:
    found: dict[str, tuple[Node, Any] | ApiException] = {}
    for node, own in cluster.coordinators(names).items() if names else ():
        for told in cluster.ask(ShareGroupDescribeRequest(group_ids=own), node).groups:
            if told.error_code == ErrorCode.NONE:
                found[told.group_id] = cluster.nodes()[node], told
            else:
                message = describe_error(told.error_code, told.error_message)
                found[told.group_id] = ApiException(ErrorCode.of(told.error_code), message)
    return {name: found[name] for name in sorted(found)}


def _describe(session: Session, flags: Flags) -> None:
    everyone = _share_groups(session.cluster) if flags.all_groups else []
    names = [*flags.group, *(group.group_id for group in everyone)]
    documents: list[object] = []
    for name, known in _described(session.cluster, names).items():
        if isinstance(known, ApiException):
            session.complain(f"group '{name}': {known.message}")
            continue
        node, told = known
        if (flags.members or flags.state is not None) and told.group_state == "Empty":
            session.warn(f"\nShare group '{name}' has no active members.")
        if flags.members:
            documents += _show_members(session, told, flags.verbose)
        elif flags.state is not None:
            documents += _show_state(session, node, told, flags.verbose)
        else:
            documents += _show_offsets(session, name, flags.verbose)
    if session.as_json:
        session.dump(documents)


def _show(session: Session, titles: list[str], rows: list[list[Any]], widths: list[int]) -> list[object]:
    session.say()
    session.rows(titles, rows, widths)
    return [dict(zip(json_names(titles), cells, strict=True)) for cells in rows]


def _show_members(session: Session, told: Any, verbose: bool) -> list[object]:
    members = sorted(told.members, key=lambda member: str(member.member_id))
    if not members:
        return []
    rows: list[list[Any]] = []
    for each in members:
        assigned = [
            (topic.topic_name, number)
            for topic in each.assignment.topic_partitions
            for number in topic.partitions
        ]
        cells = [told.group_id, each.member_id, each.client_host, each.client_id, len(assigned)]
        rows.append([*cells, *([each.member_epoch] if verbose else []), assignment_text(assigned, "")])
    titles = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [widest(15, [cells[index] for cells in rows]) for index in range(4)] + [12]
    if verbose:
        titles.append("MEMBER-EPOCH")
        widths.append(13)
    return _show(session, [*titles, "ASSIGNMENT"], rows, [*widths, 0])


def _show_state(session: Session, node: Node, told: Any, verbose: bool) -> list[object]:
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    columns: list[tuple[str, Any, int]] = [
        ("GROUP", told.group_id, widest(15, [told.group_id])),
        ("COORDINATOR (ID)", coordinator, widest(25, [coordinator])),
        ("STATE", told.group_state, 15),
    ]
    if verbose:
        columns += [("GROUP-EPOCH", told.group_epoch, 12), ("ASSIGNMENT-EPOCH", told.assignment_epoch, 17)]
    columns.append(("#MEMBERS", len(told.members), 0))
    titles, cells, widths = (list(part) for part in zip(*columns, strict=True))
    return _show(session, titles, [cells], widths)


def _offsets(cluster: Cluster, group_id: str) -> dict[Partition, Any]:
    """Where a group's shared partitions begin; ApiException for an unknown group."""
    kind = DescribeShareGroupOffsetsRequest
    request = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)])
    (told,) = cluster.ask(request, cluster.coordinator(group_id)).groups
    raise_for(told.error_code, told.error_message, group_id)
    found: dict[Partition, Any] = {}
    for topic in told.topics:
        for each in topic.partitions:
            raise_for(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")
            found[topic.topic_name, each.partition_index] = each
    return dict(sorted(found.items()))


def _show_offsets(session: Session, group_id: str, verbose: bool) -> list[object]:
    offsets = _offsets(session.cluster, group_id)
    if not offsets:
        session.say(f"\nShare group '{group_id}' has no offset information.")
        return []
    rows: list[list[Any]] = []
    for (topic, number), each in offsets.items():
        known = each.start_offset >= 0
        epoch = each.leader_epoch if known and each.leader_epoch >= 0 else None
        lag = each.lag if known and each.lag >= 0 else None
        start = each.start_offset if known else None
        rows.append([group_id, topic, number, *([epoch] if verbose else []), start, lag])
    titles = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "START-OFFSET", "LAG"]
    widths = [widest(15, [group_id]), widest(15, [cells[1] for cells in rows]), 10]
    return _show(session, titles, rows, [*widths, *([13] if verbose else []), 13, 0])


def _delete(session: Session, flags: Flags) -> None:
    listed = {group.group_id: group for group in _share_groups(session.cluster)}
    names = list(listed) if flags.all_groups else list(dict.fromkeys(flags.group))
    results: dict[str, ErrorCode] = {}
    for name in names:
        if name not in listed:
            results[name] = ErrorCode.GROUP_ID_NOT_FOUND
        elif listed[name].state not in ("Empty", ""):
            results[name] = ErrorCode.NON_EMPTY_GROUP
    results |= delete_groups(session.cluster, [name for name in names if name not in results])
    tell_deleted(session, "share", results)


def _reset(session: Session, flags: Flags) -> None:
    (group_id,) = flags.group[-1:]
    known = _described(session.cluster, [group_id])[group_id]
    if isinstance(known, ApiException):
        if known.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise known
    elif known[1].group_state not in ("Empty", "Dead"):
        raise ApiException(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group_id}' is not empty.")
    if flags.topic:
        partitions = parse_partitions(session.cluster, flags.topic)
    else:
        partitions = list(_offsets(session.cluster, group_id))
    by_leader(leaders(session.cluster, (topic for topic, _ in partitions)), partitions)
    if flags.to_datetime is not None:
        plan = offsets_since(session, partitions, parse_datetime(flags.to_datetime))
    else:
        plan = offsets_at(session.cluster, partitions, EARLIEST if flags.to_earliest else LATEST)
    if flags.execute:
        _alter(session.cluster, group_id, plan)
    show_plans(session, {group_id: plan})


def _alter(cluster: Cluster, group_id: str, plan: Plan) -> None:
    kind = AlterShareGroupOffsetsRequest
    topics = [
        kind.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                kind.AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=plan[topic, number]
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(plan).items()
    ]
    answer = cluster.ask(kind(group_id=group_id, topics=topics), cluster.coordinator(group_id))
    raise_for(answer.error_code, answer.error_message, group_id)
    for topic in answer.responses:
        for each in topic.partitions:
            raise_for(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")


def _delete_offsets(session: Session, flags: Flags) -> None:
    (group_id,) = flags.group[-1:]
    kind = DeleteShareGroupOffsetsRequest
    topics = [
        kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in dict.fromkeys(flags.topic)
    ]
    answer = session.cluster.ask(
        kind(group_id=group_id, topics=topics), session.cluster.coordinator(group_id)
    )
    raise_for(answer.error_code, answer.error_message, group_id)
    rows: list[list[Any]] = []
    for each in sorted(answer.responses, key=lambda each: str(each.topic_name)):
        failed = each.error_code != ErrorCode.NONE
        told = describe_error(each.error_code, each.error_message) if failed else ""
        rows.append([each.topic_name, f"Error: {told}" if failed else "Successful"])
        session.exit_code |= failed
    documents = _show(session, ["TOPIC", "STATUS"], rows, [widest(15, [cells[0] for cells in rows]), 0])
    if session.as_json:
        session.dump(documents)
