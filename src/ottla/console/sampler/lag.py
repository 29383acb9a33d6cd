"""How far groups are behind: in records, in time, and over time. Works on the state alone and asks no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.sampler.rings import History
from ottla.console.sampler.state import SAMPLE_EACH_S, ClusterState, GroupSample, GroupState
from ottla.console.sampler.why import Facts, explain

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.state import TopicState


def note(state: ClusterState, group: GroupState, moment_s: float) -> None:
    """Add a moment to a group's history: lag, rate, lag in seconds, and the sample that `why` looks at."""
    ends: dict[Partition, int] = {}
    starts: dict[Partition, int] = {}
    topics = state.topics
    for each in group.committed:
        name, number = each
        known = topics.get(name)
        if known is not None and number < len(known.ends) and (end := known.ends[number]) >= 0:
            ends[each] = end
            if number < len(known.starts) and (begin := known.starts[number]) >= 0:
                starts[each] = begin
    sample = GroupSample(
        moment_s, group.state, max(group.members, 0), _epoch(group), group.committed, ends, starts
    )
    group.lag = sample.lag
    group.lag_s = seconds_behind(state, group, moment_s)
    samples = group.samples
    if samples:
        before = samples[-1]
        since_s = moment_s - before.moment_s
        if since_s > 0 and group.committed_s > before.moment_s:
            read = sum(
                max(offset - before.committed.get(each, offset), 0)
                for each, offset in group.committed.items()
            )
            group.rate = read / since_s
        if len(samples) > 1 and before.moment_s - samples[-2].moment_s < SAMPLE_EACH_S:
            samples.pop()
    samples.append(sample)
    if group.lag and group.history is None:
        group.history = History()
    if group.history is not None:
        group.history.put(moment_s, float(group.lag))
    group.findings = (
        explain(list(samples), Facts(leaderless=_leaderless(state, group))) if group.committed else []
    )


def _leaderless(state: ClusterState, group: GroupState) -> frozenset[Partition]:
    """The group's partitions that have no leader."""
    names = {topic for topic, _ in group.committed}
    headless = {name: state.topics[name].headless for name in names if name in state.topics}
    if not any(headless.values()):
        return frozenset()
    return frozenset(each for each in group.committed if each[1] in headless.get(each[0], ()))


def _epoch(group: GroupState) -> int:
    return (group.described.epoch or 0) if group.described is not None else 0


def seconds_behind(state: ClusterState, group: GroupState, moment_s: float) -> float | None:
    """How old the first unread record is, from when the ends of partitions passed the committed offsets.

    None if the sampler has not watched for long enough to know.
    """
    worst = 0.0
    for (topic, number), offset in group.committed.items():
        known = state.topics.get(topic)
        if known is None or number >= len(known.ends) or known.ends[number] <= offset:
            continue
        found = _passed_s(known, number, offset)
        if found is None:
            return None
        worst = max(worst, moment_s - found)
    return worst


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
    for group in state.groups.values():
        for (topic, number), offset in group.committed.items():
            known = state.topics.get(topic)
            if known is None:
                continue
            behind = (
                known.ends[number] - offset if number < len(known.ends) and known.ends[number] >= 0 else 0
            )
            lags = found.setdefault(topic, {})
            lags[group.group_id] = lags.get(group.group_id, 0) + max(behind, 0)
    state.topic_lags = found
