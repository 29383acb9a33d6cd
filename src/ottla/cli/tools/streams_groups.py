"""`ottla streams-groups`: what kafka-streams-groups does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.connection import Node
from ottla.admin.groups import (
    ListedGroup,
    commit_offsets,
    committed_offsets,
    delete_groups,
    list_groups,
)
from ottla.admin.partitions import EARLIEST, LATEST, Partition, offsets_at
from ottla.admin.streams_groups import describe_streams_group
from ottla.admin.topics import delete_all_of
from ottla.cli.tools.base import Session, exactly_one, not_with, only_with, tool
from ottla.cli.tools.columns import row, widest
from ottla.cli.tools.group_tool import (
    Plan,
    delete_group_offsets,
    group_options,
    not_deletable,
    parse_words,
    plan_rows,
    run_group_tool,
    show_deleted,
    show_table,
    state_lines,
)
from ottla.cli.tools.partition_words import parse_partitions
from ottla.cli.tools.reset_offsets import RESET_OPTIONS, ResetFlags, as_csv, check_form, make_plan
from ottla.cli.tools.streams_internals import is_internal
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.streams_groups import StreamsGroup
    from ottla.wire.messages import StreamsGroupDescribeResponse

_STATES: Final = ("NotReady", "Assigning", "Reconciling", "Stable", "Dead", "Empty")
_PLAN_WIDTHS: Final = (30, 30, 10, 15)


class StreamsGroupsFlags(ResetFlags):
    """The flags of `ottla streams-groups`."""

    input_topic: tuple[str, ...]
    all_input_topics: bool
    delete_internal_topic: tuple[str, ...]
    delete_all_internal_topics: bool


@tool(
    "streams-groups",
    *group_options(
        describe="Show groups: offsets, members, or state.",
        reset="Set the offsets of a group; see the other flags.",
        offsets="Describe: the offsets, as without a flag.",
        delete_offsets="Delete a group's offsets of input topics.",
    ),
    click.option(
        "--input-topic", multiple=True, metavar="NAME[:N,N...]", help="An input topic of the group."
    ),
    click.option("--all-input-topics", is_flag=True, help="All input topics of the group."),
    *RESET_OPTIONS,
    click.option("--delete-internal-topic", multiple=True, metavar="NAME", help="Reset: also this topic."),
    click.option("--delete-all-internal-topics", is_flag=True, help="Also the topics it made for itself."),
    click.option("--export", is_flag=True, help="Reset: print a CSV file for --from-file."),
)
def streams_groups(session: Session, flags: StreamsGroupsFlags) -> None:
    """List, describe, reset and delete groups of Streams applications."""
    flags.topic, flags.all_topics = flags.input_topic, flags.all_input_topics
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
    }
    run_group_tool(session, flags, _check, actions)


def _check(flags: StreamsGroupsFlags, action: str) -> None:
    if action == "reset_offsets":
        exactly_one(flags, "group", "all_groups")
    not_with(flags, "input_topic", "list", "describe", "delete")
    not_with(flags, "delete", "all_input_topics")
    for name in ("members", "offsets", "verbose"):
        only_with(flags, name, "describe")
    for name in ("dry_run", "execute"):
        only_with(flags, name, "reset_offsets")
    if action == "delete_offsets" and (
        len(flags.group) != 1 or not (flags.input_topic or flags.all_input_topics)
    ):
        raise click.UsageError("--delete-offsets needs one --group, and --input-topic or --all-input-topics")
    if action == "reset_offsets":
        exactly_one(flags, "dry_run", "execute")
    only_with(flags, "delete_internal_topic", "execute")
    only_with(flags, "delete_all_internal_topics", "execute", "delete")


def _streams_groups(cluster: Cluster) -> list[ListedGroup]:
    return [group for group in list_groups(cluster) if group.type == "Streams"]


def _list(session: Session, flags: StreamsGroupsFlags) -> None:
    groups = _streams_groups(session.cluster)
    if flags.state is None:
        session.result([group.group_id for group in groups], [group.group_id for group in groups])
        return
    if flags.state:
        wanted = parse_words(flags.state, _STATES, "state")
        groups = [group for group in groups if group.state in wanted]
    documents = [{"group": group.group_id, "state": group.state} for group in groups]
    session.result(documents, state_lines(groups))


def _names(session: Session, flags: StreamsGroupsFlags) -> list[str]:
    if flags.all_groups:
        return [group.group_id for group in _streams_groups(session.cluster)]
    return list(dict.fromkeys(flags.group))


def _describe(session: Session, flags: StreamsGroupsFlags) -> None:
    documents: list[object] = []
    for name in _names(session, flags):
        node, described = describe_streams_group(session.cluster, name)
        # Kafka's tool prints it with --state only; otherwise scripts that read the output do not expect it.
        note = session.warn if flags.state is None else session.print
        if described.group_state == "Empty":
            note(f"\nError: Streams group '{name}' has no active members.")
        elif described.group_state == "Dead":
            note(f"\nError: Streams group '{name}' does not exist.")
        if flags.state is not None:
            documents += _show_state(session, node, described, flags.verbose)
        elif flags.members and described.members:
            documents += _show_members(session, described, flags.verbose)
        elif not flags.members and described.members:
            documents += _show_offsets(session, described, flags.verbose)
    if session.as_json:
        session.dump(documents)


def _show(
    session: Session, columns: list[tuple[str, int]], rows: list[list[object]]
) -> list[dict[str, object]]:
    titles, widths = [title for title, _ in columns], [width for _, width in columns]
    return show_table(session, titles, rows, widths)


def _show_state(
    session: Session, node: Node, described: StreamsGroup, verbose: bool
) -> list[dict[str, object]]:
    coordinator = f"{node.host}:{node.port} ({node.id})"
    columns = [
        ("GROUP", widest(15, [described.group_id])),
        ("COORDINATOR (ID)", widest(25, [coordinator])),
        ("STATE", 25),
    ]
    cells: list[object] = [described.group_id, coordinator, described.group_state]
    if verbose:
        columns += [("GROUP-EPOCH", 15), ("TARGET-ASSIGNMENT-EPOCH", 25)]
        cells += [described.group_epoch, described.assignment_epoch]
    return _show(session, [*columns, ("#MEMBERS", 0)], [[*cells, len(described.members)]])


def _show_members(session: Session, described: StreamsGroup, verbose: bool) -> list[dict[str, object]]:
    members = sorted(described.members, key=lambda member: str(member.member_id))
    names = ("member_id", "process_id", "client_id")
    id_width, process_width, client_width = (
        widest(15, [getattr(each, name) for each in members]) for name in names
    )
    group = ("GROUP", widest(15, [described.group_id]))
    who = [("PROCESS", process_width), ("CLIENT-ID", client_width), ("ASSIGNMENTS", 0)]
    rows: list[list[object]]
    if not verbose:
        rows = [
            [described.group_id, each.member_id, each.process_id, each.client_id, _tasks(each.assignment)]
            for each in members
        ]
        return _show(session, [group, ("MEMBER", id_width), *who], rows)
    # Kafka leaves no space between the topology's epoch and the member.
    joined = f"{'TOPOLOGY-EPOCH':<15}{'MEMBER':<{id_width}}"
    columns = [
        *(group, ("TARGET-ASSIGNMENT-EPOCH", 25), (joined, 0)),
        *(("MEMBER-PROTOCOL", 15), ("MEMBER-EPOCH", 15), *who),
    ]
    epoch = described.topology.epoch if described.topology else None
    rows = [
        [
            *(described.group_id, described.assignment_epoch, f"{epoch!s:<15}{each.member_id:<{id_width}}"),
            *("classic" if each.is_classic else "streams", each.member_epoch),
            *(each.process_id, each.client_id),
            _tasks(each.assignment) + _tasks(each.target_assignment, "TARGET-"),
        ]
        for each in members
    ]
    shown = _show(session, columns, rows)
    return [
        {key: value for key, value in document.items() if key != joined.lower().replace("-", "_")}
        | {"topology_epoch": epoch, "member": each.member_id}
        for document, each in zip(shown, members, strict=True)
    ]


def _tasks(assignment: StreamsGroupDescribeResponse.Assignment, prefix: str = "") -> str:
    """Tasks as in `ACTIVE: 0:[0,1]; STANDBY: 1:[2]; `."""
    kinds = (
        ("ACTIVE", assignment.active_tasks),
        ("STANDBY", assignment.standby_tasks),
        ("WARMUP", assignment.warmup_tasks),
    )
    return "".join(
        f"{prefix}{kind}: "
        + "".join(f"{each.subtopology_id}:[{','.join(map(str, each.partitions))}]; " for each in tasks)
        for kind, tasks in kinds
        if tasks
    )


def _sources(described: StreamsGroup, *, repartitioned: bool) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    subtopologies = (described.topology and described.topology.subtopologies) or []
    return {
        each.subtopology_id: [
            *each.source_topics,
            *((topic.name for topic in each.repartition_source_topics) if repartitioned else ()),
        ]
        for each in subtopologies
    }


def _show_offsets(session: Session, described: StreamsGroup, verbose: bool) -> list[dict[str, object]]:
    sources = _sources(described, repartitioned=True)
    partitions = sorted(
        {
            (topic, number)
            for member in described.members
            for task in member.assignment.active_tasks
            for topic in sources[task.subtopology_id]
            for number in task.partitions
        }
    )
    starts = offsets_at(session.cluster, partitions, EARLIEST)
    ends = offsets_at(session.cluster, partitions, LATEST)
    committed = committed_offsets(session.cluster, described.group_id)
    rows: list[list[object]] = []
    for partition in partitions:
        known = committed.get(partition)
        lag = ends[partition] - (known.offset if known else starts[partition])
        more = [known and known.offset, known and known.leader_epoch, ends[partition]] if verbose else []
        rows.append([described.group_id, *partition, *more, lag])
    columns = [
        *(
            ("GROUP", widest(15, [described.group_id])),
            ("TOPIC", widest(15, [topic for topic, _ in partitions])),
        ),
        ("PARTITION", 10),
    ]
    if verbose:
        columns += [("CURRENT-OFFSET", 15), ("LEADER-EPOCH", 15), ("LOG-END-OFFSET", 15)]
    return _show(session, [*columns, ("OFFSET-LAG", 15 if verbose else 0)], rows)


def _input_partitions(cluster: Cluster, group_id: str) -> list[Partition]:
    """The partitions of input topics that the group has offsets for."""
    topics = {
        name
        for names in _sources(describe_streams_group(cluster, group_id)[1], repartitioned=False).values()
        for name in names
    }
    return [partition for partition in committed_offsets(cluster, group_id) if partition[0] in topics]


def _internal_topics(described: StreamsGroup) -> list[str]:
    inputs = {name for names in _sources(described, repartitioned=False).values() for name in names}
    made = [
        topic.name
        for each in (described.topology and described.topology.subtopologies) or []
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
    ]
    return [
        name for name in dict.fromkeys(made) if name not in inputs and is_internal(name, described.group_id)
    ]


def _delete(session: Session, flags: StreamsGroupsFlags) -> None:
    listed = {group.group_id: group for group in _streams_groups(session.cluster)}
    names = _names(session, flags)
    results = not_deletable(listed, names)
    internal: dict[str, list[str]] = {}
    for name in names:
        if name not in results:
            topics = (
                _internal_topics(describe_streams_group(session.cluster, name)[1])
                if flags.delete_all_internal_topics
                else []
            )
            internal[name] = topics
    results |= delete_groups(session.cluster, list(internal))
    cleaned = [name for name, topics in internal.items() if topics and results[name] == ErrorCode.NONE]
    failures: dict[str, ApiException] = {}
    for name in cleaned:
        failure = _delete_internal(session, internal[name])
        if failure is not None:
            failures[name] = failure
    show_deleted(session, "streams", results)
    if failures:
        session.print("Deletion of some associated internal topics failed:")
        for name, failure in failures.items():
            session.print(
                f"* Internal topics of the streams group '{name}' could not be deleted due to: {failure.message}"
            )
    elif cleaned:
        quoted = "', '".join(cleaned)
        session.print(
            f"Deletion of associated internal topics of the streams groups ('{quoted}') was successful."
        )


def _delete_internal(session: Session, topics: list[str]) -> ApiException | None:
    """Delete the internal topics of a group, and print those that cannot be deleted; the first failure."""
    first = None
    for topic in topics:
        try:
            delete_all_of(session.cluster, [topic])
        except ApiException as error:
            session.print(f"Failed to delete internal topic: {topic}")
            first = first or error
    return first


def _reset(session: Session, flags: StreamsGroupsFlags) -> None:
    check_form(flags)
    plans: dict[str, Plan] = {}
    for name in _names(session, flags):
        plans[name] = _reset_one(session, flags, name)
    if flags.export and not session.as_json:
        session.print(as_csv(plans, one_group=len(flags.group) == 1))
        return
    rows = plan_rows(plans)
    names = ("group", "topic", "partition", "new_offset")
    titles = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plans else []
    session.result(
        [dict(zip(names, cells, strict=True)) for cells in rows],
        ["", *(row(cells, _PLAN_WIDTHS) for cells in [*titles, *rows])],
    )


def _reset_one(session: Session, flags: StreamsGroupsFlags, group_id: str) -> Plan:
    cluster = session.cluster
    try:
        described = describe_streams_group(cluster, group_id)[1]
    except ApiException as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        described = None
    if described is not None and described.group_state not in ("Empty", "Dead"):
        session.error(
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is"
            f" {described.group_state}."
        )
        return {}
    plan = make_plan(session, flags, group_id, _partitions(session, flags, group_id))
    if flags.execute:
        commit_offsets(cluster, group_id, plan)
        topics = list(flags.delete_internal_topic)
        if flags.delete_all_internal_topics and described is not None:
            topics = _internal_topics(described)
        if topics:
            delete_all_of(cluster, topics)
    return plan


def _partitions(session: Session, flags: StreamsGroupsFlags, group_id: str) -> list[Partition]:
    if flags.from_file:
        return []
    if flags.all_input_topics:
        return _input_partitions(session.cluster, group_id)
    chosen = parse_partitions(session.cluster, flags.input_topic)
    known = committed_offsets(session.cluster, group_id)
    if not all(partition in known for partition in chosen):
        session.print(f"\nError: One or more topics are not part of the group '{group_id}'.")
        return []
    return chosen


def _delete_offsets(session: Session, flags: StreamsGroupsFlags) -> None:
    (group_id,) = flags.group
    partitions: Iterable[Partition]
    if flags.all_input_topics:
        partitions = _input_partitions(session.cluster, group_id)
    else:
        partitions = parse_partitions(session.cluster, flags.input_topic)
    delete_group_offsets(session, group_id, partitions)
