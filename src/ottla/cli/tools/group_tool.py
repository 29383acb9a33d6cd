"""The common frame of the tools for consumer, share and streams groups: flags, checks, dispatch and output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import click

from ottla.admin.errors import describe_error
from ottla.admin.groups import ListedGroup, delete_offsets
from ottla.admin.partitions import Partition, by_topic
from ottla.cli.tools.base import Decorator, Flags, Session, exactly_one, given, not_with, only_with
from ottla.cli.tools.columns import MISSING, row, widest
from ottla.cli.tools.failures import UsageProblem
from ottla.errors import ErrorCode

Plan = dict[Partition, int]
"""The new offsets of a group."""

CONSUMER_STATES: Final = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling"),
)


class GroupFlags(Flags):
    """The flags that the tools of all group types have."""

    list: bool
    describe: bool
    delete: bool
    reset_offsets: bool
    delete_offsets: bool
    group: tuple[str, ...]
    all_groups: bool
    members: bool
    offsets: bool
    state: str | None
    verbose: bool
    timeout: int | None
    dry_run: bool
    execute: bool


F = TypeVar("F", bound=GroupFlags)


def group_options(describe: str, reset: str, offsets: str, delete_offsets: str) -> list[Decorator]:
    """The options of `GroupFlags`; some have a help text of their own for each type of groups."""
    return [
        click.option("--list", "list", is_flag=True, help="List the groups."),
        click.option("--describe", is_flag=True, help=describe),
        click.option("--delete", is_flag=True, help="Delete groups."),
        click.option("--reset-offsets", is_flag=True, help=reset),
        click.option("--delete-offsets", is_flag=True, help=delete_offsets),
        click.option("--group", multiple=True, metavar="NAME", help="The group; may be repeated."),
        click.option("--all-groups", is_flag=True, help="All groups."),
        click.option("--members", is_flag=True, help="Describe: the members."),
        click.option("--offsets", is_flag=True, help=offsets),
        click.option(
            "--state",
            is_flag=False,
            flag_value="",
            metavar="[STATE,...]",
            help="Describe: the state. List: only groups in these states.",
        ),
        click.option("--verbose", is_flag=True, help="Describe: more columns."),
        click.option("--timeout", type=int, metavar="MS", help="How long the cluster may take."),
        click.option("--dry-run", is_flag=True, help="Only show what would be reset."),
        click.option("--execute", is_flag=True, help="Do it."),
    ]


def run_group_tool(
    session: Session,
    flags: F,
    check: Callable[[F, str], None],
    actions: Mapping[str, Callable[[Session, F], None]],
) -> None:
    """Check the flags, first those of all group types, and do the one action that they name."""
    action = exactly_one(flags, *actions)
    if action in ("describe", "delete"):
        exactly_one(flags, "group", "all_groups")
    not_with(flags, "group", "list")
    only_with(flags, "state", "list", "describe")
    if action == "describe":
        _check_one_view(flags)
    check(flags, action)
    if flags.timeout is not None:
        session.timeout_s = flags.timeout / 1000
    actions[action](session, flags)


def _check_one_view(flags: GroupFlags) -> None:
    """`--describe` shows one thing at a time."""
    if sum(given(flags, name) for name in ("members", "offsets", "state")) > 1:
        raise click.UsageError("--describe takes at most one of --members, --offsets and --state")
    if flags.state:
        raise click.UsageError("--describe does not take a value for --state")


def parse_words(text: str, valid: Sequence[str], what: str) -> set[str]:
    """A list of words like `stable,empty`, in the cluster's spelling."""
    spelled = {word.lower(): word for word in valid}
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word.lower() not in spelled]
    if unknown:
        raise UsageProblem(f"Invalid {what} list '{text}'. Valid are: {', '.join(valid)}")
    return {spelled[word.lower()] for word in words}


def assignment_text(partitions: Sequence[Partition], missing: str = MISSING) -> str:
    """Partitions as in `orders:0,1;visits:0`."""
    grouped = by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in grouped.items()) or missing


def json_names(titles: Sequence[str]) -> list[str]:
    """The titles of columns as names of JSON."""
    return [title.strip("#").lower().replace("-", "_") for title in titles]


def show_table(
    session: Session, titles: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]
) -> list[dict[str, object]]:
    """Show a table; the same as documents."""
    session.rows(titles, rows, widths)
    return [dict(zip(json_names(titles), cells, strict=True)) for cells in rows]


def state_lines(groups: Sequence[ListedGroup]) -> list[str]:
    """Groups with their states, below a header."""
    widths = [widest(15, [group.group_id for group in groups]), 0]
    return [row(cells, widths) for cells in [("GROUP", "STATE"), *((g.group_id, g.state) for g in groups)]]


def not_deletable(listed: Mapping[str, ListedGroup], names: Iterable[str]) -> dict[str, ErrorCode]:
    """The groups that cannot be deleted: unknown ones, and those with members."""
    found: dict[str, ErrorCode] = {}
    for name in names:
        if name not in listed:
            found[name] = ErrorCode.GROUP_ID_NOT_FOUND
        elif listed[name].state not in ("Empty", ""):
            found[name] = ErrorCode.NON_EMPTY_GROUP
    return found


def show_deleted(session: Session, kind: str, results: Mapping[str, ErrorCode]) -> None:
    """Show which groups were deleted, and which were not."""
    deleted = [name for name, code in results.items() if code == ErrorCode.NONE]
    for name, code in results.items():
        if code != ErrorCode.NONE:
            session.error(f"group '{name}' could not be deleted: {describe_error(code)}")
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if len(deleted) == len(results):
        lines = [f"Deletion of requested {kind} groups ({quoted}) was successful."]
    else:
        lines = [f"\nThese {kind} groups were deleted successfully: {quoted}"] if deleted else []
    session.result({name: code.name for name, code in results.items()}, lines)


def plan_rows(plans: Mapping[str, Plan]) -> list[tuple[str, str, int, int]]:
    """Group, topic, partition and offset, in order."""
    return [
        (group, topic, number, offset)
        for group, plan in sorted(plans.items())
        for (topic, number), offset in sorted(plan.items())
    ]


def show_plans(session: Session, plans: Mapping[str, Plan]) -> None:
    """The new offsets of groups."""
    rows = plan_rows(plans)
    names = ("group", "topic", "partition", "new_offset")
    if session.as_json:
        session.dump([dict(zip(names, cells, strict=True)) for cells in rows])
        return
    widths = [widest(15, list(plans)), widest(15, [cells[1] for cells in rows]), 10, 0]
    session.print()
    if plans:
        session.rows(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, widths)


def delete_group_offsets(session: Session, group_id: str, partitions: Iterable[Partition]) -> None:
    """Delete a group's offsets of partitions, and show the results."""
    response = delete_offsets(session.cluster, group_id, partitions)
    code = ErrorCode.of(response.error_code)
    results = {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    failed = [each for each in results.values() if each != ErrorCode.NONE]
    if code != ErrorCode.NONE:
        session.error(describe_error(code))
    elif failed:
        session.error("the offsets of some partitions could not be deleted")
    else:
        session.print(f"Request succeeded for deleting offsets from group {group_id}.")
    widths = [widest(15, [topic for topic, _ in results]), 10, 15]
    session.print()
    rows = [
        (topic, number, "Successful" if each == ErrorCode.NONE else f"Error: {describe_error(each)}")
        for (topic, number), each in sorted(results.items())
    ]
    session.rows(("TOPIC", "PARTITION", "STATUS"), rows, widths)
    if session.as_json:
        session.dump(
            [
                {"topic": topic, "partition": number, "status": each.name}
                for (topic, number), each in results.items()
            ]
        )
