"""`ottla streams-groups`: what kafka-streams-groups does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, only_with, tool
from ottla.cli.tools.columns import row, widest
from ottla.cli.tools.failures import raise_for
from ottla.cli.tools.group_admin import (
    ListedGroup,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
    list_groups,
    parse_words,
)
from ottla.cli.tools.group_output import (
    Plan,
    check_one_view,
    json_names,
    plan_rows,
    tell_deleted,
    tell_deleted_offsets,
)
from ottla.cli.tools.partitions import EARLIEST, LATEST, Partition, offsets_at, parse_partitions
from ottla.cli.tools.reset_offsets import RESET_FORMS, as_csv, chosen_form, make_plan
from ottla.cli.tools.streams_internals import is_internal
from ottla.cli.tools.topics import delete_topics
from ottla.client.connection import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_ACTIONS: Final = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
_STATES: Final = ("NotReady", "Assigning", "Reconciling", "Stable", "Dead", "Empty")
_PLAN_WIDTHS: Final = (30, 30, 10, 15)


@tool(
    "streams-groups",
    click.option("--list", "list", is_flag=True, help="List the groups."),
    click.option("--describe", is_flag=True, help="Show groups: offsets, members, or state."),
    click.option("--delete", is_flag=True, help="Delete groups."),
    click.option("--reset-offsets", is_flag=True, help="Let a group begin elsewhere; see the other flags."),
    click.option("--delete-offsets", is_flag=True, help="Forget a group's offsets of input topics."),
    click.option("--group", multiple=True, metavar="NAME", help="The group; may be repeated."),
    click.option("--all-groups", is_flag=True, help="All groups."),
    click.option(
        "--input-topic", multiple=True, metavar="NAME[:N,N...]", help="An input topic of the group."
    ),
    click.option("--all-input-topics", is_flag=True, help="All input topics of the group."),
    click.option("--members", is_flag=True, help="Describe: the members."),
    click.option("--offsets", is_flag=True, help="Describe: the offsets, as without a flag."),
    click.option(
        "--state", is_flag=False, flag_value="", metavar="[STATE,...]", help="The state, or only these."
    ),
    click.option("--verbose", is_flag=True, help="Describe: more columns."),
    click.option("--timeout", type=int, metavar="MS", help="How long the cluster may take."),
    *(
        click.option(flag, metavar=metavar, help=text)
        if metavar
        else click.option(flag, is_flag=True, help=text)
        for flag, metavar, text in RESET_FORMS
    ),
    click.option("--delete-internal-topic", multiple=True, metavar="NAME", help="Reset: also this topic."),
    click.option("--delete-all-internal-topics", is_flag=True, help="Also the topics it made for itself."),
    click.option("--dry-run", is_flag=True, help="Only show what would be reset."),
    click.option("--execute", is_flag=True, help="Do it."),
    click.option("--export", is_flag=True, help="Reset: print a CSV file for --from-file."),
)
def streams_groups(session: Session, flags: Flags) -> None:
    """List, describe, reset and delete groups of Streams applications."""
    action = exactly_one(flags, *_ACTIONS)
    _check(flags, action)
    if flags.timeout is not None:
        session.properties["default.api.timeout.ms"] = str(flags.timeout)
    {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
    }[action](session, flags)


def _check(flags: Flags, action: str) -> None:
    if action in ("describe", "delete", "reset_offsets"):
        exactly_one(flags, "group", "all_groups")
    not_with(flags, "group", "list")
    not_with(flags, "input_topic", "list", "describe", "delete")
    not_with(flags, "delete", "all_input_topics")
    only_with(flags, "state", "list", "describe")
    for name in ("members", "offsets", "verbose"):
        only_with(flags, name, "describe")
    for name in ("dry_run", "execute"):
        only_with(flags, name, "reset_offsets")
    if action == "describe":
        check_one_view(flags)
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


def _list(session: Session, flags: Flags) -> None:
    groups = _streams_groups(session.cluster)
    if flags.state is None:
        session.tell([group.group_id for group in groups], [group.group_id for group in groups])
        return
    if flags.state:
        wanted = parse_words(flags.state, _STATES, "state")
        groups = [group for group in groups if group.state in wanted]
    widths = [widest(15, [group.group_id for group in groups]), 0]
    session.tell(
        [{"group": group.group_id, "state": group.state} for group in groups],
        [row(cells, widths) for cells in [("GROUP", "STATE"), *((g.group_id, g.state) for g in groups)]],
    )


def _told(cluster: Cluster, group_id: str) -> tuple[Node, Any]:
    """A group, and its coordinator; ApiException where it cannot be described."""
    node = cluster.coordinator(group_id)
    (told,) = cluster.ask(StreamsGroupDescribeRequest(group_ids=[group_id]), node).groups
    raise_for(told.error_code, told.error_message, group_id)
    return cluster.nodes()[node], told


def _names(session: Session, flags: Flags) -> list[str]:
    if flags.all_groups:
        return [group.group_id for group in _streams_groups(session.cluster)]
    return list(dict.fromkeys(flags.group))


def _describe(session: Session, flags: Flags) -> None:
    documents: list[object] = []
    for name in _names(session, flags):
        node, told = _told(session.cluster, name)
        # Kafka's tool tells of it in its view of the state only; in the others it is not part of what scripts read.
        tell = session.warn if flags.state is None else session.say
        if told.group_state == "Empty":
            tell(f"\nError: Streams group '{name}' has no active members.")
        elif told.group_state == "Dead":
            tell(f"\nError: Streams group '{name}' does not exist.")
        if flags.state is not None:
            documents += _show_state(session, node, told, flags.verbose)
        elif flags.members and told.members:
            documents += _show_members(session, told, flags.verbose)
        elif not flags.members and told.members:
            documents += _show_offsets(session, told, flags.verbose)
    if session.as_json:
        session.dump(documents)


def _show(session: Session, columns: list[tuple[str, int]], rows: list[list[Any]]) -> list[object]:
    titles, widths = [title for title, _ in columns], [width for _, width in columns]
    session.rows(titles, rows, widths)
    return [dict(zip(json_names(titles), cells, strict=True)) for cells in rows]


def _show_state(session: Session, node: Node, told: Any, verbose: bool) -> list[object]:
    coordinator = f"{node.host}:{node.port} ({node.id})"
    columns = [
        ("GROUP", widest(15, [told.group_id])),
        ("COORDINATOR (ID)", widest(25, [coordinator])),
        ("STATE", 25),
    ]
    cells: list[Any] = [told.group_id, coordinator, told.group_state]
    if verbose:
        columns += [("GROUP-EPOCH", 15), ("TARGET-ASSIGNMENT-EPOCH", 25)]
        cells += [told.group_epoch, told.assignment_epoch]
    return _show(session, [*columns, ("#MEMBERS", 0)], [[*cells, len(told.members)]])


def _show_members(session: Session, told: Any, verbose: bool) -> list[object]:
    members = sorted(told.members, key=lambda member: str(member.member_id))
    names = ("member_id", "process_id", "client_id")
    id_width, process_width, client_width = (
        widest(15, [getattr(each, name) for each in members]) for name in names
    )
    group = ("GROUP", widest(15, [told.group_id]))
    who = [("PROCESS", process_width), ("CLIENT-ID", client_width), ("ASSIGNMENTS", 0)]
    if not verbose:
        rows = [
            [told.group_id, each.member_id, each.process_id, each.client_id, _tasks(each.assignment)]
            for each in members
        ]
        return _show(session, [group, ("MEMBER", id_width), *who], rows)
    # Kafka leaves no space between the topology's epoch and the member.
    joined = f"{'TOPOLOGY-EPOCH':<15}{'MEMBER':<{id_width}}"
    columns = [
        *(group, ("TARGET-ASSIGNMENT-EPOCH", 25), (joined, 0)),
        *(("MEMBER-PROTOCOL", 15), ("MEMBER-EPOCH", 15), *who),
    ]
    epoch = told.topology.epoch if told.topology else None
    rows = [
        [
            *(told.group_id, told.assignment_epoch, f"{epoch!s:<15}{each.member_id:<{id_width}}"),
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
        if isinstance(document, dict)
    ]


def _tasks(assignment: Any, prefix: str = "") -> str:
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


def _sources(told: Any, *, repartitioned: bool) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    subtopologies = told.topology.subtopologies if told.topology else []
    return {
        each.subtopology_id: [
            *each.source_topics,
            *((topic.name for topic in each.repartition_source_topics) if repartitioned else ()),
        ]
        for each in subtopologies
    }


def _show_offsets(session: Session, told: Any, verbose: bool) -> list[object]:
    sources = _sources(told, repartitioned=True)
    partitions = sorted(
        {
            (topic, number)
            for member in told.members
            for task in member.assignment.active_tasks
            for topic in sources[task.subtopology_id]
            for number in task.partitions
        }
    )
    starts = offsets_at(session.cluster, partitions, EARLIEST)
    ends = offsets_at(session.cluster, partitions, LATEST)
    committed = committed_offsets(session.cluster, told.group_id)
    rows: list[list[Any]] = []
    for partition in partitions:
        known = committed.get(partition)
        lag = ends[partition] - (known.offset if known else starts[partition])
        more = [known and known.offset, known and known.leader_epoch, ends[partition]] if verbose else []
        rows.append([told.group_id, *partition, *more, lag])
    columns = [
        *(("GROUP", widest(15, [told.group_id])), ("TOPIC", widest(15, [topic for topic, _ in partitions]))),
        ("PARTITION", 10),
    ]
    if verbose:
        columns += [("CURRENT-OFFSET", 15), ("LEADER-EPOCH", 15), ("LOG-END-OFFSET", 15)]
    return _show(session, [*columns, ("OFFSET-LAG", 15 if verbose else 0)], rows)


def _input_partitions(cluster: Cluster, group_id: str) -> list[Partition]:
    """The partitions of input topics that the group has offsets for."""
    topics = {
        name
        for names in _sources(_told(cluster, group_id)[1], repartitioned=False).values()
        for name in names
    }
    return [partition for partition in committed_offsets(cluster, group_id) if partition[0] in topics]


def _internal_topics(told: Any) -> list[str]:
    inputs = {name for names in _sources(told, repartitioned=False).values() for name in names}
    made = [
        topic.name
        for each in (told.topology.subtopologies if told.topology else [])
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
    ]
    return [name for name in dict.fromkeys(made) if name not in inputs and is_internal(name, told.group_id)]


def _delete(session: Session, flags: Flags) -> None:
    listed = {group.group_id: group for group in _streams_groups(session.cluster)}
    results: dict[str, ErrorCode] = {}
    internal: dict[str, list[str]] = {}
    for name in _names(session, flags):
        if name not in listed:
            results[name] = ErrorCode.GROUP_ID_NOT_FOUND
        elif listed[name].state not in ("Empty", ""):
            results[name] = ErrorCode.NON_EMPTY_GROUP
        else:
            topics = (
                _internal_topics(_told(session.cluster, name)[1]) if flags.delete_all_internal_topics else []
            )
            internal[name] = topics
    results |= delete_groups(session.cluster, list(internal))
    cleaned = [name for name, topics in internal.items() if topics and results[name] == ErrorCode.NONE]
    failures: dict[str, ApiException] = {}
    for name in cleaned:
        failure = _delete_internal(session, internal[name])
        if failure is not None:
            failures[name] = failure
    tell_deleted(session, "streams", results)
    if failures:
        session.say("Deletion of some associated internal topics failed:")
        for name, failure in failures.items():
            session.say(
                f"* Internal topics of the streams group '{name}' could not be deleted due to: {failure.message}"
            )
    elif cleaned:
        quoted = "', '".join(cleaned)
        session.say(
            f"Deletion of associated internal topics of the streams groups ('{quoted}') was successful."
        )


def _delete_internal(session: Session, topics: list[str]) -> ApiException | None:
    """Delete what a group made for itself, and tell of what cannot be deleted: the first such failure."""
    first = None
    for topic in topics:
        try:
            delete_topics(session.cluster, [topic])
        except ApiException as error:
            session.say(f"Failed to delete internal topic: {topic}")
            first = first or error
    return first


def _reset(session: Session, flags: Flags) -> None:
    flags.topic, flags.all_topics = flags.input_topic, flags.all_input_topics
    form = chosen_form(flags)
    plans: dict[str, Plan] = {}
    for name in _names(session, flags):
        plans[name] = _reset_one(session, flags, form, name)
    if flags.export and not session.as_json:
        session.say(as_csv(plans, one_group=len(flags.group) == 1))
        return
    rows = plan_rows(plans)
    names = ("group", "topic", "partition", "new_offset")
    titles = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plans else []
    session.tell(
        [dict(zip(names, cells, strict=True)) for cells in rows],
        ["", *(row(cells, _PLAN_WIDTHS) for cells in [*titles, *rows])],
    )


def _reset_one(session: Session, flags: Flags, form: str, group_id: str) -> Plan:
    cluster = session.cluster
    try:
        told = _told(cluster, group_id)[1]
    except ApiException as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        told = None
    if told is not None and told.group_state not in ("Empty", "Dead"):
        session.complain(
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is"
            f" {told.group_state}."
        )
        return {}
    plan = make_plan(session, flags, form, group_id, _partitions(session, flags, group_id))
    if flags.execute:
        commit_offsets(cluster, group_id, plan)
        topics = list(flags.delete_internal_topic)
        if flags.delete_all_internal_topics and told is not None:
            topics = _internal_topics(told)
        if topics:
            delete_topics(cluster, topics)
    return plan


def _partitions(session: Session, flags: Flags, group_id: str) -> list[Partition]:
    if flags.from_file:
        return []
    if flags.all_input_topics:
        return _input_partitions(session.cluster, group_id)
    chosen = parse_partitions(session.cluster, flags.input_topic)
    known = committed_offsets(session.cluster, group_id)
    if not all(partition in known for partition in chosen):
        session.say(f"\nError: One or more topics are not part of the group '{group_id}'.")
        return []
    return chosen


def _delete_offsets(session: Session, flags: Flags) -> None:
    (group_id,) = flags.group
    partitions: Iterable[Partition]
    if flags.all_input_topics:
        partitions = _input_partitions(session.cluster, group_id)
    else:
        partitions = parse_partitions(session.cluster, flags.input_topic)
    tell_deleted_offsets(session, group_id, *delete_offsets(session.cluster, group_id, partitions))
