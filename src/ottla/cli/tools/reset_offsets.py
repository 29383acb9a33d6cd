"""Every form of `--reset-offsets`: the new offsets of a group, to show, to export or to commit."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.admin.groups import Committed, commit_offsets, committed_offsets, describe_groups
from ottla.admin.partitions import EARLIEST, LATEST, Partition, by_leader, leaders, offsets_at
from ottla.cli.tools.base import Decorator, Session, given
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.group_tool import GroupFlags, Plan, plan_rows, show_plans
from ottla.cli.tools.partition_words import parse_partitions
from ottla.cli.tools.values import now_ms, parse_datetime, parse_duration_ms, parse_int
from ottla.errors import ApiException, ErrorCode

RESET_FORMS: Final = (
    ("--to-earliest", "", "To the oldest record."),
    ("--to-latest", "", "To the end."),
    ("--to-current", "", "To what is committed now."),
    ("--to-offset", "OFFSET", "To an offset."),
    ("--to-datetime", "YYYY-MM-DDTHH:MM:SS.sss", "To the first record from then on."),
    ("--by-duration", "PnDTnHnMnS", "To the first record within this time before now."),
    ("--shift-by", "COUNT", "Forward by this many records; back if negative."),
    ("--from-file", "FILE", "To the offsets of a CSV file."),
)
"""Flag, name of its value if it has one, and help."""


class ResetFlags(GroupFlags):
    """The flags of every form of a reset."""

    topic: tuple[str, ...]
    all_topics: bool
    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: str | None
    to_datetime: str | None
    by_duration: str | None
    shift_by: str | None
    from_file: str | None
    export: bool


RESET_OPTIONS: Final[list[Decorator]] = [
    click.option(flag, metavar=metavar, help=text) if metavar else click.option(flag, is_flag=True, help=text)
    for flag, metavar, text in RESET_FORMS
]

_FORMS: Final = tuple(flag[2:].replace("-", "_") for flag, _, _ in RESET_FORMS)


def reset_offsets(session: Session, flags: ResetFlags, group_ids: list[str]) -> None:
    """Make the plan for each group, and show, export or commit it."""
    check_form(flags)
    if flags.dry_run and flags.execute:
        raise click.UsageError("--dry-run can't be used with --execute")
    if not flags.dry_run and not flags.execute:
        session.warn("Nothing is changed without --execute; say --dry-run if that is what you want.")
    plans: dict[str, Plan] = {}
    for name, group in describe_groups(session.cluster, group_ids).items():
        if isinstance(group, ApiException) and group.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise group
        if not isinstance(group, ApiException) and group.state not in ("Empty", "Dead"):
            session.error(
                f"the offsets of group '{name}' can only be reset when it has no members; it is {group.state}"
            )
            plans[name] = {}
            continue
        plans[name] = make_plan(session, flags, name)
        if flags.execute:
            commit_offsets(session.cluster, name, plans[name])
    _show(session, flags, plans)


def check_form(flags: ResetFlags) -> None:
    """Refuse flags that name no form of a reset, or several."""
    found = [name for name in _FORMS if given(flags, name)]
    if len(found) != 1:
        names = ", ".join(flag for flag, _, _ in RESET_FORMS)
        raise click.UsageError(f"--reset-offsets needs exactly one of {names}")
    if not (flags.all_topics or flags.topic or flags.from_file):
        raise click.UsageError("--reset-offsets needs --all-topics or --topic")


def make_plan(
    session: Session, flags: ResetFlags, group_id: str, partitions: list[Partition] | None = None
) -> Plan:
    """The new offsets of a group, for the given partitions or for those that the flags name."""
    cluster = session.cluster
    if flags.from_file is not None:
        plan = read_plan(flags.from_file, flags.group[0] if len(flags.group) == 1 else None).get(group_id)
        if plan is None:
            session.error(f"the file has no offsets for group '{group_id}'")
            return {}
        return _within_range(session, plan)
    if partitions is None:
        if flags.all_topics:
            partitions = list(committed_offsets(cluster, group_id))
        else:
            partitions = parse_partitions(cluster, flags.topic)
    by_leader(leaders(cluster, (topic for topic, _ in partitions)), partitions)
    if flags.to_earliest:
        return offsets_at(cluster, partitions, EARLIEST)
    if flags.to_latest:
        return offsets_at(cluster, partitions, LATEST)
    if flags.to_offset is not None:
        return _within_range(session, dict.fromkeys(partitions, parse_int("--to-offset", flags.to_offset)))
    if flags.to_datetime is not None:
        return offsets_since(session, partitions, parse_datetime(flags.to_datetime))
    if flags.by_duration is not None:
        return offsets_since(
            session, partitions, now_ms() - parse_duration_ms("--by-duration", flags.by_duration)
        )
    committed = committed_offsets(cluster, group_id)
    if flags.shift_by is not None:
        shift = parse_int("--shift-by", flags.shift_by)
        return _within_range(session, _shifted(partitions, committed, shift))
    known = {each: committed[each].offset for each in partitions if each in committed}
    rest = [each for each in partitions if each not in committed]
    return known | offsets_at(cluster, rest, LATEST)


def _shifted(partitions: list[Partition], committed: Mapping[Partition, Committed], shift: int) -> Plan:
    for topic, number in partitions:
        if (topic, number) not in committed:
            raise UsageProblem(f"--shift-by: the group has no committed offset for {topic}-{number}")
    return {each: committed[each].offset + shift for each in partitions}


def _within_range(session: Session, plan: Plan) -> Plan:
    """The plan, with offsets outside the logs moved to their nearest ends."""
    starts = offsets_at(session.cluster, plan, EARLIEST)
    ends = offsets_at(session.cluster, plan, LATEST)
    result: Plan = {}
    for (topic, number), offset in plan.items():
        start, end = starts[topic, number], ends[topic, number]
        result[topic, number] = min(max(offset, start), end)
        if not start <= offset <= end:
            moved = result[topic, number]
            session.warn(f"{topic}-{number} holds {start} to {end}: {moved} is taken in place of {offset}")
    return result


def offsets_since(session: Session, partitions: list[Partition], timestamp: int) -> Plan:
    """The first offsets from a time on; the ends of partitions that have nothing since."""
    found = offsets_at(session.cluster, partitions, timestamp)
    later = [partition for partition, offset in found.items() if offset < 0]
    for topic, number in later:
        session.print(
            f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset."
        )
    return found | offsets_at(session.cluster, later, LATEST)


def read_plan(file: str, only_group: str | None) -> dict[str, Plan]:
    """The plan of a CSV file: group,topic,partition,offset; files for one group may leave the group out."""
    plans: dict[str, Plan] = {}
    for cells in csv.reader(io.StringIO(Path(file).read_text(encoding="utf-8"))):
        if not cells:
            continue
        if len(cells) == 3 and only_group is not None:
            cells = [only_group, *cells]
        if len(cells) != 4:
            raise UsageProblem(f"{file}: expected group,topic,partition,offset in {','.join(cells)!r}")
        partition = parse_int("partition", cells[2])
        plans.setdefault(cells[0], {})[cells[1], partition] = parse_int("offset", cells[3])
    return plans


def _show(session: Session, flags: ResetFlags, plans: dict[str, Plan]) -> None:
    if flags.export and not session.as_json:
        session.print(as_csv(plans, one_group=len(flags.group) == 1))
    else:
        show_plans(session, plans)


def as_csv(plans: dict[str, Plan], *, one_group: bool) -> str:
    """Plans in the form that --from-file reads."""
    out = io.StringIO()
    rows = plan_rows(plans)
    csv.writer(out, lineterminator="\n").writerows(cells[1:] if one_group else cells for cells in rows)
    return out.getvalue()
