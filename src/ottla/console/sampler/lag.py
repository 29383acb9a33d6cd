"""How far groups are behind: in records, in time, and over time. Works on the state alone and asks no broker."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.console.sampler.rings import History
from ottla.console.sampler.samples import UNKNOWN, GroupSample, Offsets, pairs
from ottla.console.sampler.state import SAMPLE_EACH_S, ClusterState, GroupState
from ottla.console.sampler.why import LEVEL, Facts, explain

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.state import TopicState

_NONE: Final = array("q")


def note(state: ClusterState, group: GroupState, moment_s: float) -> None:
    """Add a moment to a group's history: lag, rate, lag in seconds, and the sample that `why` looks at."""
    _find_places(group)
    before = group.samples[-1] if group.samples else None
    committed = _shared(group, array("q", group.committed.values()), before.committed if before else None)
    ends = _shared(group, _column(state, group, "ends"), before.ends if before else None)
    starts = _shared(group, _column(state, group, "starts"), before.starts if before else None)
    samples = group.samples
    if before is not None:
        since_s = moment_s - before.moment_s
        if since_s > 0 and group.committed_s > before.moment_s:
            read = sum(
                later - earlier for _, earlier, later in pairs(before.committed, committed) if later > earlier
            )
            group.rate = read / since_s
        if len(samples) > 1 and before.moment_s - samples[-2].moment_s < SAMPLE_EACH_S:
            samples.pop()
    last = samples[-1] if samples else None
    members = max(group.members, 0)
    sample = GroupSample(moment_s, group.state, members, _epoch(group), committed, ends, starts, last)
    samples.append(sample)
    group.lag = sample.lag
    group.lag_s = seconds_behind(state, group, moment_s)
    if group.lag and group.history is None:
        group.history = History()
    if group.history is not None:
        group.history.put(moment_s, float(group.lag))
    still = before is not None and before.ends is ends and before.committed is committed
    if not still or group.topic_lags.keys() != group.by_topic.keys():
        group.topic_lags = _by_topic(state, group, committed, ends)
    _explain(state, group, before if still else None)


def _find_places(group: GroupState) -> None:
    """Number the partitions of a group: its samples share the numbers while the partitions are the same."""
    if group.places.keys() == group.committed.keys():
        return
    group.places = {each: place for place, each in enumerate(group.committed)}
    group.by_topic = {}
    for topic, number in group.committed:
        group.by_topic.setdefault(topic, []).append(number)


def _column(state: ClusterState, group: GroupState, which: str) -> array[int]:
    """The ends or starts of a group's partitions, in their order: sorted by topic."""
    column = array("q")
    for topic, numbers in group.by_topic.items():
        known = state.topics.get(topic)
        offsets: array[int] = getattr(known, which) if known is not None else _NONE
        count = len(offsets)
        if len(numbers) == count == numbers[-1] + 1:
            column.extend(offsets)
        else:
            column.extend([offsets[number] if number < count else UNKNOWN for number in numbers])
    return column


def _shared(group: GroupState, column: array[int], before: Mapping[Partition, int] | None) -> Offsets:
    """The offsets of the sample before if they are the same: most groups of a large cluster are idle."""
    if isinstance(before, Offsets) and before.places is group.places and before.column == column:
        return before
    return Offsets(group.places, column)


def _by_topic(state: ClusterState, group: GroupState, committed: Offsets, ends: Offsets) -> dict[str, int]:
    """How many records of each topic that there is a group has not read."""
    found = {topic: 0 for topic in group.by_topic if topic in state.topics}
    for (topic, _), offset, end in pairs(committed, ends):
        if end > offset:
            found[topic] += end - offset
    return found


def _explain(state: ClusterState, group: GroupState, before: GroupSample | None) -> None:
    """Find out why a group lags. `before` is the last sample if nothing was read or written since."""
    now = group.samples[-1]
    if not group.committed:
        group.findings = []
        return
    leaderless = _leaderless(state, group)
    was_level = [each.rule for each in group.findings] == [LEVEL]
    if before is not None and was_level and not now.lag and not leaderless and _looks_like(now, before):
        return
    group.findings = explain(list(group.samples), Facts(leaderless=leaderless) if leaderless else None)


def _looks_like(now: GroupSample, before: GroupSample) -> bool:
    """Whether no rule can see a difference, of two samples with the same offsets committed and written."""
    same = now.starts is before.starts and now.state == before.state
    return same and now.members == before.members and now.epoch == before.epoch


def _leaderless(state: ClusterState, group: GroupState) -> frozenset[Partition]:
    """The group's partitions that have no leader."""
    if not state.headless:
        return frozenset()
    headless = {name: state.topics[name].headless for name in group.by_topic if name in state.topics}
    return frozenset(each for each in group.committed if each[1] in headless.get(each[0], ()))


def _epoch(group: GroupState) -> int:
    return (group.described.epoch or 0) if group.described is not None else 0


def seconds_behind(state: ClusterState, group: GroupState, moment_s: float) -> float | None:
    """How old the first unread record is, from when the ends of partitions passed the committed offsets.

    None if the sampler has not watched for long enough to know.
    """
    worst = 0.0
    if not group.lag:
        return worst
    for (topic, number), offset in group.committed.items():
        known = state.topics.get(topic)
        if known is None or number >= len(known.ends) or known.ends[number] <= offset:
            continue
        found = _passed_s(known, number, offset)
        if found is None:
            return None
        worst = max(worst, moment_s - found)
    return worst


def behind_by_partition(
    state: ClusterState, group: GroupState, moment_s: float
) -> Iterator[tuple[Partition, TopicState, float | None]]:
    """How old the first unread record of each partition is, from samples; None where that is not known yet."""
    for partition, offset in group.committed.items():
        topic, number = state.topics.get(partition[0]), partition[1]
        if topic is None or number >= len(topic.ends) or topic.ends[number] < 0:
            continue
        if topic.ends[number] <= offset:
            yield partition, topic, 0.0
            continue
        found = _passed_s(topic, number, offset)
        yield partition, topic, None if found is None else max(moment_s - found, 0.0)


def _passed_s(topic: TopicState, number: int, offset: int) -> float | None:
    """When the end of a partition passed an offset: between two samples by interpolation."""
    later: tuple[float, int] | None = None
    for moment_s, ends in reversed(topic.past_ends):
        if number >= len(ends) or ends[number] < 0:
            break
        end = ends[number]
        if end <= offset:
            if later is None or later[1] == end:
                return moment_s
            return moment_s + (later[0] - moment_s) * (offset - end) / (later[1] - end)
        later = moment_s, end
    return None


def by_topic(state: ClusterState) -> None:
    """The lag of every group on every topic it reads."""
    found: dict[str, dict[str, int]] = {}
    for name, group in state.groups.items():
        for topic, behind in group.topic_lags.items():
            found.setdefault(topic, {})[name] = behind
    state.topic_lags = found
