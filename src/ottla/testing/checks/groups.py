"""The promises about consumer groups: offsets do not go back, no record is skipped, none needlessly repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ottla.testing.checks.history import Commit, History, Outcome
from ottla.testing.checks.seen import Anomaly, Seen


def check_commits(history: History, seen: Seen) -> Iterator[Anomaly]:
    """The offset of a group never goes back after an acknowledged commit.

    A commit whose answer never came may take effect at any time later: what it explains is no anomaly.
    """
    by_place: dict[tuple[str, str], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        if not commit.seen:
            by_place[commit.group, commit.partition].append(commit)
    for event in history.commits:
        if event.seen or event.outcome is Outcome.OK:
            lowest = event.offset if event.seen else 0
            yield from _went_back(event, by_place[event.group, event.partition], lowest)


def _went_back(event: Commit, same: list[Commit], lowest: int) -> Iterator[Anomaly]:
    reached = max((c.offset for c in same if c.outcome is Outcome.OK and c.ended < event.began), default=-1)
    late = any(
        c.outcome is Outcome.UNKNOWN and c.began < event.ended and lowest <= c.offset <= event.offset
        for c in same
    )
    if event.offset < reached and not late:
        yield Anomaly(
            "group went back",
            f"group {event.group} was at {reached} of {event.partition} and later at {event.offset}",
        )


def check_group_reads(history: History, seen: Seen) -> Iterator[Anomaly]:
    """The members of a group together read every record; a new assignment begins at the committed offset."""
    given: dict[tuple[str, str], set[int]] = defaultdict(set)
    first: dict[tuple[str, str, str, str], tuple[int, float]] = {}
    for poll in history.polls:
        if not poll.group or poll.final:
            continue
        for partition, offset, _ in poll.records:
            given[poll.group, partition].add(offset)
            first.setdefault((poll.group, partition, poll.client, poll.session), (offset, poll.since))
    visible = seen.visible(committed=True)
    for (group, partition), offsets in sorted(given.items()):
        left_out = sorted(o for o in visible.get(partition, {}) if o < max(offsets) and o not in offsets)
        if left_out:
            yield Anomaly("group skip", f"no member of {group} was given {left_out[:5]} of {partition}")
    for (group, partition, client, session), (offset, since) in first.items():
        yield from _repeated(history, group, partition, f"{client} in session {session}", offset, since)


def _repeated(
    history: History, group: str, partition: str, who: str, offset: int, since: float
) -> Iterator[Anomaly]:
    same = [c for c in history.commits if (c.group, c.partition, c.seen) == (group, partition, False)]
    reached = max((c.offset for c in same if c.outcome is Outcome.OK and c.ended < since), default=-1)
    late = any(c.outcome is Outcome.UNKNOWN and c.offset <= offset for c in same)
    if since and offset < reached and not late:
        yield Anomaly(
            "group repeat", f"{who} of {group} began at {offset} of {partition}, committed was {reached}"
        )
