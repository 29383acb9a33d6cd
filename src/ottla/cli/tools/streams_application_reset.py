"""`ottla streams-application-reset`: what kafka-streams-application-reset does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ottla.admin.errors import raise_for
from ottla.admin.groups import Group, commit_offsets, committed_offsets, describe_groups, remove_members
from ottla.admin.partitions import EARLIEST, LATEST, Partition, leaders, offsets_at
from ottla.admin.topics import delete_all_of
from ottla.cli.tools.base import Flags, Session, given, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.group_tool import Plan
from ottla.cli.tools.names import topic_names
from ottla.cli.tools.reset_offsets import read_plan
from ottla.cli.tools.streams_internals import is_internal
from ottla.cli.tools.values import now_ms, parse_datetime, parse_duration_ms, parse_int
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_FORMS: Final = (
    *("to_offset", "to_earliest", "to_latest", "shift_by", "to_datetime", "by_duration", "from_file"),
)


class StreamsApplicationResetFlags(Flags):
    """The flags of `ottla streams-application-reset`."""

    application_id: str
    input_topics: str | None
    intermediate_topics: str | None
    internal_topics: str | None
    to_earliest: bool
    to_latest: bool
    to_offset: str | None
    to_datetime: str | None
    by_duration: str | None
    shift_by: str | None
    from_file: str | None
    force: bool
    dry_run: bool


@tool(
    "streams-application-reset",
    click.option("--application-id", metavar="ID", help="The application's id, which is its group."),
    click.option("--input-topics", metavar="NAME,...", help="Topics to read again."),
    click.option("--intermediate-topics", metavar="NAME,...", help="Topics whose content is to be skipped."),
    click.option("--internal-topics", metavar="NAME,...", help="Only these of its own topics are deleted."),
    click.option(
        "--to-earliest", is_flag=True, help="Input topics: to the oldest record, as without a flag."
    ),
    click.option("--to-latest", is_flag=True, help="To the end."),
    click.option("--to-offset", metavar="OFFSET", help="To an offset."),
    click.option(
        "--to-datetime", metavar="YYYY-MM-DDTHH:MM:SS.sss", help="To the first record from then on."
    ),
    click.option(
        "--by-duration", metavar="PnDTnHnMnS", help="To the first record within this time before now."
    ),
    click.option("--shift-by", metavar="COUNT", help="Forward by this many records; back if negative."),
    click.option("--from-file", metavar="FILE", help="To the offsets of a CSV file."),
    click.option("--force", is_flag=True, help="Remove members that are still in the group."),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    aliases={"--config-file": "--command-config"},
)
def streams_application_reset(session: Session, flags: StreamsApplicationResetFlags) -> None:
    """Reset a Streams application: its offsets go back, and the topics that it created for itself are deleted."""
    require(flags, "application_id")
    if sum(given(flags, name) for name in _FORMS) > 1:
        raise click.UsageError("only one way to reset the offsets can be given")
    if flags.intermediate_topics:
        session.print("WARN: `--intermediate-topics` is deprecated and will be removed in a future release")
    _remove_members(session, flags)
    known = topic_names(session.cluster)
    if flags.dry_run:
        session.print(
            "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
        )
    plan = _reset(session, flags, known)
    deleted = _delete_internal(session, flags, known)
    if session.as_json:
        offsets = [
            {"topic": topic, "partition": number, "offset": offset}
            for (topic, number), offset in sorted(plan.items())
        ]
        session.dump({"offsets": offsets, "deleted": deleted, "dry_run": flags.dry_run})


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def _listed(words: list[str]) -> str:
    return f"[{', '.join(words)}]"


def _remove_members(session: Session, flags: StreamsApplicationResetFlags) -> None:
    group_id = flags.application_id
    group = describe_groups(session.cluster, [group_id])[group_id]
    if isinstance(group, ApiException):
        if group.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise group
        return
    if not group.members:
        return
    if not flags.force:
        names = ", ".join(member.client_id for member in group.members)
        raise ApiException(
            ErrorCode.NON_EMPTY_GROUP,
            f"group '{group_id}' still has members ({names}): stop the application, or remove them with --force",
        )
    session.print(f"Force deleting all active members in the group: {group_id}")
    _expel(session.cluster, group)


def _expel(cluster: Cluster, group: Group) -> None:
    reason = "removed by ottla streams-application-reset"
    members = [
        ("" if each.instance_id else each.member_id, each.instance_id or None, reason)
        for each in group.members
    ]
    for each in remove_members(cluster, group.group_id, members, group.coordinator.id).members:
        # A member that has left in the meantime is no error.
        if each.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise_for(each.error_code, None, each.member_id)


def _reset(session: Session, flags: StreamsApplicationResetFlags, known: list[str]) -> Plan:
    inputs, between = _words(flags.input_topics), _words(flags.intermediate_topics)
    if not inputs and not between:
        session.print("No input or intermediate topics specified. Skipping seek.")
        return {}
    if inputs:
        session.print(f"Reset-offsets for input topics {_listed(inputs)}")
    if between:
        session.print(f"Seek-to-end for intermediate topics {_listed(between)}")
    for kind, topics, mark in (("input", inputs, "Topic: "), ("intermediate", between, "Topic:")):
        missing = [topic for topic in topics if topic not in known]
        if missing:
            session.error(
                f"there is no topic {', '.join(missing)}; `ottla topics --list` shows what there is"
            )
            session.print(f"Following {kind} topics are not found, skipping them")
            for topic in missing:
                session.print(mark + topic)
    cluster = session.cluster
    found_inputs = list(leaders(cluster, (topic for topic in inputs if topic in known)))
    found_between = list(
        leaders(cluster, (topic for topic in between if topic in known and topic not in inputs))
    )
    if not found_inputs and not found_between:
        return {}
    plan: Plan = {}
    if found_inputs:
        session.print(
            f"Following input topics offsets will be reset to (for consumer group {flags.application_id})"
        )
        plan = _input_plan(session, flags, found_inputs)
        for (topic, number), offset in sorted(plan.items()):
            session.print(f"Topic: {topic} Partition: {number} Offset: {offset}")
    if found_between:
        session.print(
            "Following intermediate topics offsets will be reset to end (for consumer group"
            f" {flags.application_id})"
        )
        for topic, _ in found_between:
            session.print(f"Topic: {topic}")
        plan |= offsets_at(cluster, found_between, LATEST)
    if not flags.dry_run:
        commit_offsets(cluster, flags.application_id, plan)
    session.print("Done.")
    return plan


def _input_plan(session: Session, flags: StreamsApplicationResetFlags, partitions: list[Partition]) -> Plan:
    cluster = session.cluster
    if flags.to_latest:
        return offsets_at(cluster, partitions, LATEST)
    if flags.to_offset is not None:
        wanted = parse_int("--to-offset", flags.to_offset)
        return _within_range(session, dict.fromkeys(partitions, wanted))
    if flags.shift_by is not None:
        shift = parse_int("--shift-by", flags.shift_by)
        committed = committed_offsets(cluster, flags.application_id)
        # A group that has committed nothing stands where a new consumer would: at the end.
        ends = offsets_at(cluster, [each for each in partitions if each not in committed], LATEST)
        now = ends | {each: committed[each].offset for each in partitions if each in committed}
        return _within_range(session, {each: offset + shift for each, offset in now.items()})
    if flags.to_datetime is not None:
        return _since(session, partitions, parse_datetime(flags.to_datetime))
    if flags.by_duration is not None:
        return _since(session, partitions, now_ms() - parse_duration_ms("--by-duration", flags.by_duration))
    if flags.from_file is not None:
        plan = read_plan(flags.from_file, flags.application_id).get(flags.application_id, {})
        missing = [partition for partition in partitions if partition not in plan]
        if missing:
            raise UsageProblem(f"{flags.from_file} has no offset for {missing[0][0]}-{missing[0][1]}")
        return _within_range(session, {partition: plan[partition] for partition in partitions})
    return offsets_at(cluster, partitions, EARLIEST)


def _within_range(session: Session, plan: Plan) -> Plan:
    starts = offsets_at(session.cluster, plan, EARLIEST)
    ends = offsets_at(session.cluster, plan, LATEST)
    for partition, offset in plan.items():
        start, end = starts[partition], ends[partition]
        if offset >= end:
            session.print(f"New offset ({offset}) is higher than latest offset. Value will be set to {end}")
            plan[partition] = end
        elif offset <= start:
            session.print(
                f"New offset ({offset}) is lower than earliest offset. Value will be set to {start}"
            )
            plan[partition] = start
    return plan


def _since(session: Session, partitions: list[Partition], timestamp: int) -> Plan:
    found = offsets_at(session.cluster, partitions, timestamp)
    empty = [partition for partition, offset in found.items() if offset < 0]
    for topic, number in empty:
        session.print(
            f"Partition {number} from topic {topic} is empty, without a committed record. Falling back to"
            " latest known offset."
        )
    return found | offsets_at(session.cluster, empty, LATEST)


def _delete_internal(session: Session, flags: StreamsApplicationResetFlags, known: list[str]) -> list[str]:
    inferred = [topic for topic in known if is_internal(topic, flags.application_id)]
    chosen = _words(flags.internal_topics)
    strangers = [topic for topic in chosen if topic not in inferred]
    if strangers:
        raise UsageProblem(
            f"--internal-topics: {', '.join(strangers)} is no internal topic of '{flags.application_id}'; a dry run"
            " without this flag shows those that are"
        )
    topics = chosen or inferred
    kind = "specified" if chosen else "inferred"
    session.print(f"Deleting {kind} internal topics {_listed(topics)}")
    if topics and not flags.dry_run:
        delete_all_of(session.cluster, topics)
    session.print("Done.")
    return topics
