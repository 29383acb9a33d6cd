"""What the tools of all kinds of groups print in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ottla.cli.tools.base import Flags, Session, given
from ottla.cli.tools.columns import MISSING, widest
from ottla.cli.tools.failures import describe
from ottla.cli.tools.partitions import Partition, by_topic
from ottla.errors import ErrorCode

Plan = dict[Partition, int]
"""Offsets that a group is to go on from."""


def check_one_view(flags: Flags) -> None:
    """`--describe` shows one thing at a time."""
    if sum(given(flags, name) for name in ("members", "offsets", "state")) > 1:
        raise click.UsageError("--describe takes at most one of --members, --offsets and --state")
    if flags.state:
        raise click.UsageError("--describe does not take a value for --state")


def assignment_text(partitions: Sequence[Partition], missing: str = MISSING) -> str:
    """Partitions as in `orders:0,1;visits:0`."""
    grouped = by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in grouped.items()) or missing


def json_names(titles: Sequence[str]) -> list[str]:
    """The titles of columns as names of JSON."""
    return [title.strip("#").lower().replace("-", "_") for title in titles]


def tell_deleted(session: Session, kind: str, results: Mapping[str, ErrorCode]) -> None:
    """What became of groups that were to be deleted."""
    deleted = [name for name, code in results.items() if code == ErrorCode.NONE]
    for name, code in results.items():
        if code != ErrorCode.NONE:
            session.complain(f"group '{name}' could not be deleted: {describe(code)}")
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if len(deleted) == len(results):
        lines = [f"Deletion of requested {kind} groups ({quoted}) was successful."]
    else:
        lines = [f"\nThese {kind} groups were deleted successfully: {quoted}"] if deleted else []
    session.tell({name: code.name for name, code in results.items()}, lines)


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
    session.say()
    if plans:
        session.rows(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, widths)


def tell_deleted_offsets(
    session: Session, group_id: str, code: ErrorCode, results: Mapping[Partition, ErrorCode]
) -> None:
    """What became of offsets that a group was to forget."""
    failed = [each for each in results.values() if each != ErrorCode.NONE]
    if code != ErrorCode.NONE:
        session.complain(describe(code))
    elif failed:
        session.complain("the offsets of some partitions could not be deleted")
    else:
        session.say(f"Request succeeded for deleting offsets from group {group_id}.")
    widths = [widest(15, [topic for topic, _ in results]), 10, 15]
    session.say()
    rows = [
        (topic, number, "Successful" if each == ErrorCode.NONE else f"Error: {describe(each)}")
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
