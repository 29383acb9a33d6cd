"""Moving clients to the target and back: drain the flow, bring every group to its place, and shut the mirror out.

The way back copies only what the target got since: the flow's notes and runs are turned around, so that it begins where
the first direction ended, and turned again at its end, so that the first direction can go on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.groups import Group, describe_groups, list_consumer_groups
from ottla.errors import ApiException
from ottla.mirror.config import FlowConfig
from ottla.mirror.failures import MirrorError
from ottla.mirror.flow import Flow
from ottla.mirror.groups import GroupSync
from ottla.mirror.ledger import Ledger, Note
from ottla.mirror.ownership import LaneOwner
from ottla.mirror.renamed import Say, positions_home
from ottla.mirror.runners import ThreadRunner
from ottla.mirror.runs import reversed_runs
from ottla.mirror.topics import mirrored_topics, open_copies
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place

_ROUNDS: Final = 5
"""How often a drain looks for new records before it says that the source is still written to."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What the last copying before a switch did."""

    records: int
    groups: int


def failover(flow: FlowConfig, other: FlowConfig | None, say: Say, *, force: bool = False) -> None:
    """Make the target whole: the last records and positions, and no writer left. The clients move afterwards.

    `other` is the enabled flow in the other direction, if there is one.
    """
    source = Cluster(flow.source_settings)
    try:
        source.metadata(())
        answers, why = True, ""
        members = _groups_with_members(flow, source)
    except ApiException as error:
        answers, why, members = False, error.message or error.code.name, []
    finally:
        source.close()
    if not answers:
        if not force:
            raise MirrorError(
                f"{flow.source} does not answer: {why}. What is not copied yet would be lost; "
                "`ottla mirror drill` has said how much. Use --force if it does not come back"
            )
        lanes = shut_out(flow)
        say(
            f"{flow.source} does not answer: the {lanes} lanes of {flow.name} are shut out, nothing more was copied"
        )
        say(f"groups at {flow.target} stand where the mirror last put them")
    else:
        if members and not force:
            raise _has_members(flow.source, members)
        done = drain(flow, say, force=force)
        say(
            f"{flow.name}: {done.records:,} last records and {done.groups} changed positions are at {flow.target}"
        )
        if other is not None and (moved := positions_home(other, say)):
            say(_moved(other, moved))
    say(f"{flow.name} has ended. Start producers and consumers at {flow.target}")


def _moved(copied: FlowConfig, count: int) -> str:
    return (
        f"{count} positions in the copies of {copied.name} are at {copied.source} in its own topics; "
        f"{copied.name} has ended, too"
    )


def _groups_with_members(flow: FlowConfig, cluster: Cluster) -> list[str]:
    wanted = flow.group_filter()
    names = [one.group_id for one in list_consumer_groups(cluster) if one.group_id in wanted]
    states = describe_groups(cluster, names)
    return sorted(name for name in names if isinstance(state := states.get(name), Group) and state.members)


def _has_members(cluster: str, groups: list[str]) -> MirrorError:
    names = ", ".join(groups)
    return MirrorError(
        f"groups have members at {cluster}: {names}. Stop their consumers first, or use --force"
    )


def shut_out(flow: FlowConfig) -> int:
    """Fence every lane that may still write to the target; returns how many there were."""
    ledger, target = Ledger(flow), Cluster(flow.target_settings)
    try:
        ledger.open()
        lanes: dict[int, list[Place]] = {}
        for place, note in ledger.notes.items():
            if note.lane >= 0:
                remote = Place(flow.policy.remote_topic(flow.source, place.topic), place.partition)
                lanes.setdefault(note.lane, []).append(remote)
        open_copies(target, {remote.topic for places in lanes.values() for remote in places})
        for number, places in sorted(lanes.items()):
            LaneOwner(target, flow.transactional_id(number)).fence(places)
        return len(lanes)
    finally:
        ledger.close()
        target.close()


def drain(flow: FlowConfig, say: Say, *, force: bool = False) -> Drained:
    """Take the flow over, copy up to the source's end until that stays, and bring the groups to their places."""
    runner = ThreadRunner()
    work = Flow(flow, runner)
    ended = threading.Event()
    clean = False
    groups: GroupSync | None = None
    try:
        work.prepare()
        copied = _copy_to_the_end(work, ended, say, force=force)
        stopped = [state.stopped for state in work.partitions.values() if state.stopped]
        if stopped and not force:
            raise MirrorError(f"{len(stopped)} partitions cannot go on: {stopped[0]}")
        groups = GroupSync(work)
        changed = groups.sync()
        open_copies(work.target, {topic.remote for topic in work.topics.values()})
        clean = True
        return Drained(copied, changed)
    finally:
        if groups is not None:
            groups.close()
        work.close(clean=clean)
        runner.close()


def _copy_to_the_end(work: Flow, ended: threading.Event, say: Say, *, force: bool) -> int:
    copied = 0
    for _ in range(_ROUNDS):
        until = work.ends()
        left = sum(state.lag for state in work.partitions.values() if state.stopped is None)
        if not left:
            return copied
        say(f"{work.config.name}: {left:,} offsets to go")
        while any(
            state.stopped is None and state.position.upstream < until.get(place, 0)
            for place, state in work.partitions.items()
        ):
            copied += work.cycle(ended, until)
    if force:
        return copied
    raise MirrorError(
        f"{work.config.source} is still written to: stop its producers first, or use --force and lose what they write"
    )


# -- the way back


def turned_flow(flow: FlowConfig) -> FlowConfig:
    """The flow of the way back, which copies the same topics under the same names."""
    values = {
        **flow.values,
        "heartbeats.replication.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "refresh.topics.enabled": "false",
    }
    return FlowConfig(flow.target, flow.source, values, flow.target_settings, flow.source_settings)


def reversed_note(note: Note, topic_id: str) -> Note:
    """Where the other direction goes on: after the last pair of offsets that both sides have."""
    if note.target is None:
        raise MirrorError("a partition was copied by MirrorMaker 2, which notes no offsets of the target")
    return Note(note.target, note.offset, topic_id=topic_id)


def failback(flow: FlowConfig, other: FlowConfig | None, say: Say, *, force: bool = False) -> None:
    """Copy what the target got since the failover to the source, with the groups' positions, and turn the flow again.

    `flow` is the flow of the failover, A->B; this is the way from B back to A. `other` is the enabled flow B->A of
    clusters whose mirror renames topics.
    """
    back = turned_flow(flow)
    source = Cluster(back.source_settings)
    try:
        members = _groups_with_members(back, source)
    finally:
        source.close()
    if members and not force:
        raise _has_members(back.source, members)
    if flow.identity:
        _copy_back(flow, back, say, force=force)
    else:
        _come_back(flow, other, say, force=force)
    say(
        f"{flow.name} can go on: start it with `ottla mirror run`, and producers and consumers at {flow.source}"
    )


def _copy_back(flow: FlowConfig, back: FlowConfig, say: Say, *, force: bool) -> None:
    places = _seed(flow, back, say, force=force)
    done = drain(back, say, force=force)
    say(
        f"{back.name}: {done.records:,} records and {done.groups} changed positions went back to {back.target}"
    )
    _turn_again(flow, back, places)


def _come_back(flow: FlowConfig, other: FlowConfig | None, say: Say, *, force: bool) -> None:
    """Topics are renamed: what the target got is in topics of its own, which the other flow copies."""
    if other is not None:
        done = drain(other, say, force=force)
        say(
            f"{other.name}: {done.records:,} last records and {done.groups} changed positions are at {other.target}"
        )
    elif not force:
        raise MirrorError(
            f"{flow.name} renames topics, and the file does not enable {flow.target}->{flow.source}: what "
            f"{flow.target} got in topics of its own would not be at {flow.source}. Enable it, or use --force to bring "
            "back only the positions of groups"
        )
    moved = positions_home(flow, say)
    say(f"{moved} positions in the copies of {flow.name} are at {flow.source} in its own topics")


def _seed(flow: FlowConfig, back: FlowConfig, say: Say, *, force: bool) -> list[Place]:
    """Write the notes and runs of the way back; the places that it copies."""
    ledger, turned = Ledger(flow), Ledger(back)
    home, away = Cluster(flow.source_settings), Cluster(flow.target_settings)
    try:
        # A mirror that still runs in the first direction is shut out before the second begins.
        shut_out(flow)
        ledger.look()
        topics = mirrored_topics(back, away)
        places = [place for place in ledger.notes if place.topic in topics]
        ends = list_offsets(home, dict.fromkeys(places, LATEST), isolation=READ_UNCOMMITTED)
        notes = _turned_notes(ledger.notes, {place: topics[place.topic].topic_id for place in places})
        lonely = {
            place: ends[place] - note.target - 1 for place, note in notes.items() if note.target is not None
        }
        lonely = {place: count for place, count in lonely.items() if count > 0}
        if lonely and not force:
            named = ", ".join(
                f"{place.topic}-{place.partition} ({count})" for place, count in sorted(lonely.items())[:3]
            )
            raise MirrorError(
                f"{flow.source} holds offsets that were never copied to {flow.target}: {named}. With --force they stay "
                "there, before what comes back"
            )
        turned.open()
        for place in places:
            known = turned.map_of(place)
            for run in reversed_runs(ledger.map_of(place)):
                known.add(*run)
            if place in lonely:
                notes[place] = replace(notes[place], target=ends[place] - 1)
                known.add(notes[place].offset + 1, ends[place], 0)
        turned.write(notes)
        say(f"{back.name}: {len(places)} partitions go on where {flow.name} ended")
        return places
    finally:
        for each in (ledger, turned, home, away):
            each.close()


def _turned_notes(notes: Mapping[Place, Note], topic_ids: Mapping[Place, str]) -> dict[Place, Note]:
    return {place: reversed_note(notes[place], topic_id) for place, topic_id in topic_ids.items()}


def _turn_again(flow: FlowConfig, back: FlowConfig, places: Iterable[Place]) -> None:
    """Teach the first direction what the way back copied, so that it does not copy it again."""
    ledger, turned = Ledger(flow), Ledger(back)
    home = Cluster(flow.source_settings)
    try:
        ids = {name: topic.topic_id for name, topic in mirrored_topics(flow, home).items()}
        turned.look()
        ledger.open()
        new: dict[Place, Note] = {}
        for place in places:
            note = turned.notes.get(place)
            if note is None or place.topic not in ids:
                continue
            known = ledger.map_of(place)
            for run in reversed_runs(turned.map_of(place)):
                known.add(*run)
            new[place] = reversed_note(note, ids[place.topic])
        ledger.write(new)
    finally:
        for each in (ledger, turned, home):
            each.close()
