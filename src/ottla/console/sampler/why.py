"""Why a group lags: a pure function from samples of the last ten minutes to findings in sentences, worst first.

It knows nothing of clusters and clocks. What only a look at records or settings can tell comes in as `Facts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.sampler.samples import pairs

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.samples import GroupSample

BAD, WARN, INFO, OK = "bad", "warn", "info", "ok"
LEVEL: Final = "level"
"""The rule of a group that has read everything."""
_ORDER: Final = {BAD: 0, WARN: 1, INFO: 2, OK: 3}

_STILL_S: Final = 20.0
"""A partition that stands for this long while records come in is stalled."""
_COMMITS_ALONE: Final = 2
"""As many commits without members are no reset, but a reader."""
_REBALANCES: Final = 3
_REBALANCES_WITHIN_S: Final = 300.0
_HOT_SHARE: Final = 0.5
_SKEW_SHARE: Final = 0.7
_NEAR_LOSS_S: Final = 24 * 3600.0
_SMALL_LAG: Final = 100
_LEVEL_FACTOR: Final = 1.02
_RARE_COMMITS_S: Final = 30.0
_THROTTLED_SHARE: Final = 0.8
"""Who reads this much of what a quota allows is held back by it: rates are averages over minutes."""
_MARKERS_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason: how bad, its rule, a sentence, what it was seen by, and what to do next."""

    severity: str
    rule: str
    sentence: str
    evidence: str = ""
    next_step: str = ""
    partition: Partition | None = None
    """The partition to look at, where there is one."""


class Next(NamedTuple):
    """Offsets ahead of a committed one that were looked at, and how many of them no reader gets."""

    offsets: int
    markers: int
    """The ends of transactions."""
    gaps: int
    """Offsets that compaction has emptied."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a look at members, settings and records adds to the samples."""

    members: Mapping[str, Sequence[Partition]] = field(default_factory=dict)
    """Members by name with their partitions."""
    retention_ms: Mapping[str, int] = field(default_factory=dict)
    unread_since_ms: Mapping[Partition, int] = field(default_factory=dict)
    """The timestamp of the first unread record."""
    stable_ends: Mapping[Partition, int] = field(default_factory=dict)
    """Last stable offsets."""
    open_since: Mapping[Partition, str] = field(default_factory=dict)
    """Who holds back the last stable offset, in words."""
    records: Mapping[Partition, str] = field(default_factory=dict)
    """What the record at the committed offset looks like, in words."""
    next_offsets: Mapping[Partition, Next] = field(default_factory=dict)
    """What the first unread offsets are."""
    common_keys: Mapping[Partition, str] = field(default_factory=dict)
    """The commonest key of a hot partition, in words."""
    allowed_bytes_s: Mapping[str, float] = field(default_factory=dict)
    """What members may read by their quotas, by name."""
    record_bytes: Mapping[str, float] = field(default_factory=dict)
    """Bytes of a record in the log, on average, by topic."""
    leaderless: frozenset[Partition] = frozenset()
    now_ms: int = 0


def span(seconds: float) -> str:
    """A length of time in words: 41 s, 12 min, 2 h 10 min, 3 days."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 2 * 86400:
        hours, minutes = whole // 3600, whole % 3600 // 60
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{whole // 86400} days"


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def explain(samples: Sequence[GroupSample], facts: Facts | None = None) -> list[Finding]:
    """The findings about a group, worst first; one finding of severity `ok` if nothing is wrong."""
    if not samples:
        return []
    known = facts or Facts()
    now = samples[-1]
    found: list[Finding] = []
    for rule in (_leaderless, _lost, _empty, _rebalancing, _transactions, _stalled, _loss_ahead, _rewound):
        found += rule(samples, known)
    reads = now.members > 0 or _commits_without_members(samples)
    if reads and not any(each.severity == BAD for each in found):
        for rule in (_throttled, _speed, _hot, _skewed):
            found += rule(samples, known)
    for rule in (_idle_members, _markers, _not_real):
        found += rule(samples, known)
    found.sort(key=lambda each: _ORDER[each.severity])
    return found or [_all_well(samples)]


def _all_well(samples: Sequence[GroupSample]) -> Finding:
    lag = samples[-1].lag
    read, written, over_s = _rates(samples)
    if not lag:
        return Finding(OK, LEVEL, "It has read everything.")
    count = "1 record is" if lag == 1 else f"{lag:,} records are"
    if lag <= max(_SMALL_LAG, 2 * written):
        return Finding(OK, "level", f"It keeps up: {count} on {'its' if lag == 1 else 'their'} way.")
    if over_s < _STILL_S:
        waited = "The console has just begun to watch; a verdict takes half a minute."
        return Finding(INFO, "watching", f"{count} unread.", waited)
    return Finding(
        INFO,
        "distance",
        f"It reads as fast as records come in, and stays {lag:,} behind.",
        f"it reads {read:,.0f}/s, {written:,.0f}/s come in",
        "More members, or faster ones, would catch up.",
    )


def _leaderless(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    if not facts.leaderless:
        return []
    mine = sorted(each for each in samples[-1].committed if each in facts.leaderless)
    if not mine:
        return []
    names = ", ".join(map(_name, mine[:3]))
    return [
        Finding(
            BAD,
            "no leader",
            f"{len(mine)} of its partitions {'has' if len(mine) == 1 else 'have'} no leader: {names}.",
            "metadata",
            "Start the brokers that hold them.",
            mine[0],
        )
    ]


def _lost(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    now = samples[-1]
    lost = {
        each: start - offset for each, offset, start in pairs(now.committed, now.starts) if start > offset
    }
    if not lost:
        return []
    worst = max(lost, key=lambda each: lost[each])
    return [
        Finding(
            BAD,
            "lost",
            "1 record was deleted before it was read."
            if sum(lost.values()) == 1
            else f"{sum(lost.values()):,} records were deleted before they were read.",
            f"{_name(worst)} begins at {now.starts[worst]:,}, the group stands at {now.committed[worst]:,}",
            "Give the topic a longer retention; reset the group to the earliest offset.",
            worst,
        )
    ]


def _moves_without_members(samples: Sequence[GroupSample]) -> list[float]:
    """When somebody committed for the group while it had no members, as Spark's pipelines do. Resets do not count."""
    return [
        later.moment_s
        for earlier, later in itertools.pairwise(samples)
        if later.moved and not later.back and not later.members and not earlier.members
    ]


def _commits_without_members(samples: Sequence[GroupSample]) -> bool:
    """Whether a reader that assigns partitions to itself is at work: its next commit is not overdue."""
    moves = _moves_without_members(samples)
    if len(moves) < _COMMITS_ALONE:
        return False
    every_s = (moves[-1] - moves[0]) / (len(moves) - 1)
    return samples[-1].moment_s - moves[-1] <= max(3 * every_s, _STILL_S)


def _empty(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    now = samples[-1]
    if now.members or not now.lag or _commits_without_members(samples):
        return []
    since = now.moment_s
    for sample in reversed(samples):
        if sample.members:
            break
        since = sample.moment_s
    for_s = now.moment_s - since
    whole = len(samples) > 1 and since == samples[0].moment_s
    how_long = f"for {'at least ' if whole else ''}{span(for_s)}" if for_s >= 1 else "now"
    grows = now.lag - samples[0].lag
    sentence = f"Nobody reads: the group has been empty {how_long}."
    moves = _moves_without_members(samples)
    if len(moves) >= _COMMITS_ALONE:
        ago = span(now.moment_s - moves[-1])
        sentence = f"Nobody reads: the last commit, by a reader that is no member, was {ago} ago."
    return [
        Finding(
            BAD if grows > 0 else WARN,
            "empty",
            sentence,
            f"{now.lag:,} records wait" + (f", {grows:,} more than before" if grows > 0 else ""),
            "Start its consumers.",
        )
    ]


def _rebalancing(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    recent = [each for each in samples if samples[-1].moment_s - each.moment_s <= _REBALANCES_WITHIN_S]
    rises = sum(
        later.epoch > earlier.epoch or (later.state != earlier.state and "ebalan" in later.state)
        for earlier, later in itertools.pairwise(recent)
    )
    if rises <= _REBALANCES:
        return []
    within_s = recent[-1].moment_s - recent[0].moment_s
    return [
        Finding(
            BAD,
            "rebalancing",
            f"It rebalances every {span(within_s / rises)}.",
            f"{rises} new assignments in {span(within_s)}",
            "Look for members that take longer than max.poll.interval.ms, or that crash and come back.",
        )
    ]


def _transactions(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    now = samples[-1]
    found = []
    for each, stable in sorted(facts.stable_ends.items()):
        waiting = now.ends.get(each, 0) - stable
        if each in now.committed and waiting > 0 and now.committed[each] >= stable:
            who = facts.open_since.get(each, "an open transaction")
            found.append(
                Finding(
                    BAD,
                    "open transaction",
                    f"Readers of committed records wait for {who}.",
                    f"{_name(each)}: last stable offset {stable:,}, end {now.ends[each]:,}",
                    "Let the producer end it, or abort it on the page Transactions.",
                    each,
                )
            )
    return found[:3]


def _stood_since(samples: Sequence[GroupSample], each: Partition) -> float:
    """Since when the committed offset of a partition is what it is now."""
    now = samples[-1]
    since = now.moment_s
    for sample in reversed(samples):
        if sample.committed.get(each) != now.committed[each]:
            break
        since = sample.moment_s
    return since


def _is_empty_ahead(facts: Facts, each: Partition, behind: int) -> bool:
    """Whether none of the unread offsets holds a record for a reader."""
    ahead = facts.next_offsets.get(each)
    return ahead is not None and ahead.offsets >= behind and ahead.markers + ahead.gaps >= ahead.offsets


def _stalled(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    now = samples[-1]
    if not now.members or not now.lag:
        return []
    held = {each for each, stable in facts.stable_ends.items() if now.committed.get(each, 0) >= stable}
    found = []
    for each, offset in sorted(now.committed.items()):
        behind = now.ends.get(each, 0) - offset
        since = _stood_since(samples, each)
        for_s = now.moment_s - since
        if behind <= 0 or for_s < _STILL_S or each in held or _is_empty_ahead(facts, each, behind):
            continue
        then = next((sample for sample in samples if sample.moment_s >= since), now)
        # What had been written when it stopped already waited for a reader; a quiet commit is not a stall.
        if then.ends.get(each, 0) - offset <= 0 and for_s < 2 * _STILL_S:
            continue
        what = facts.records.get(each, "")
        found.append(
            Finding(
                BAD,
                "stalled",
                f"Partition {_name(each)} stands at {offset:,} for {span(for_s)}."
                + (f" {what}" if what else ""),
                f"{behind:,} records wait behind it while its consumer is alive",
                "Look at the record there; skip it with a reset, or mend the consumer.",
                each,
            )
        )
    return found[:3]


def _loss_ahead(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    now = samples[-1]
    soonest: tuple[float, Partition] | None = None
    for each, written_ms in facts.unread_since_ms.items():
        keep_ms = facts.retention_ms.get(each[0], -1)
        if keep_ms < 0 or each not in now.committed or now.ends.get(each, 0) <= now.committed[each]:
            continue
        left_s = (written_ms + keep_ms - facts.now_ms) / 1000
        if soonest is None or left_s < soonest[0]:
            soonest = left_s, each
    if soonest is None or soonest[0] > _NEAR_LOSS_S:
        return []
    left_s, each = soonest
    old_s = (facts.now_ms - facts.unread_since_ms[each]) / 1000
    sentence = (
        f"In {span(left_s)} retention begins to delete unread records."
        if left_s > 0
        else "Retention may delete unread records at any moment."
    )
    return [
        Finding(
            WARN if left_s > 3600 else BAD,
            "time to loss",
            sentence,
            f"the oldest unread record of {_name(each)} is {span(old_s)} old",
            "Give the topic a longer retention.ms until the group has caught up.",
            each,
        )
    ]


def _rewound(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    found = []
    for later in samples[1:]:
        if back := later.back:
            ago_s = samples[-1].moment_s - later.moment_s
            found.append(
                Finding(
                    INFO,
                    "rewound",
                    f"It went back by {back:,} records {span(ago_s)} ago.",
                    "committed offsets fell",
                    "Nothing, if this was a reset.",
                )
            )
    return found[-1:]


def _rates(samples: Sequence[GroupSample]) -> tuple[float, float, float]:
    """(records read per second, records written per second, seconds between the samples)."""
    first, now = samples[0], samples[-1]
    over_s = now.moment_s - first.moment_s
    if over_s <= 0:
        return 0.0, 0.0, 0.0
    read = sum(max(later - earlier, 0) for _, earlier, later in pairs(first.committed, now.committed))
    written = sum(
        max(later - earlier, 0)
        for each, earlier, later in pairs(first.ends, now.ends)
        if each in now.committed
    )
    return read / over_s, written / over_s, over_s


def _speed(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    read, written, over_s = _rates(samples)
    now = samples[-1]
    lag, before = now.lag, samples[0].lag
    if over_s < _STILL_S or lag <= max(_SMALL_LAG, 2 * written):
        return []
    if read > written * _LEVEL_FACTOR and lag < before:
        return [
            Finding(
                INFO,
                "catching up",
                f"It will be level in about {span(lag / (read - written))}.",
                f"it reads {read:,.0f}/s, {written:,.0f}/s come in",
                "Nothing: it catches up.",
            )
        ]
    if written > read * _LEVEL_FACTOR and lag > before:
        per_member = read / now.members if now.members else 0
        more = int((written - read) / per_member) + 1 if per_member > 0 else 0
        members = "1 more member of this speed is" if more == 1 else f"{more} more members of this speed are"
        need = f": about {members} needed" if 0 < more < 1000 else ""
        partitions = len(now.committed)
        step = (
            "Add members."
            if now.members < partitions
            else "It has a member per partition: add partitions, too."
        )
        if not now.members:
            step = (
                "It reads without members, as pipelines on Spark do: give it more cores, or larger batches."
            )
        return [
            Finding(
                WARN,
                "too slow",
                f"It reads {read:,.0f}/s, {written:,.0f}/s come in{need}.",
                f"lag rose from {before:,} to {lag:,} in {span(over_s)}",
                step,
            )
        ]
    return []


def _written(samples: Sequence[GroupSample]) -> dict[str, dict[Partition, int]]:
    """What came into each partition between the samples, by topic."""
    first, now = samples[0], samples[-1]
    found: dict[str, dict[Partition, int]] = {}
    for each in now.committed:
        if each in now.ends:
            count = max(now.ends[each] - first.ends.get(each, now.ends[each]), 0)
            found.setdefault(each[0], {})[each] = count
    return found


def hot_partitions(samples: Sequence[GroupSample]) -> dict[Partition, tuple[int, int]]:
    """The partitions of a group that take most of what comes into their topics: (records, records of the topic)."""
    if not samples or samples[-1].lag <= _SMALL_LAG:
        return {}
    found = {}
    for _, counts in sorted(_written(samples).items()):
        total = sum(counts.values())
        hottest = max(counts, key=lambda each: counts[each])
        if len(counts) >= 3 and total >= _SMALL_LAG and counts[hottest] > total * _HOT_SHARE:
            found[hottest] = counts[hottest], total
    return found


def _hot(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    found = []
    for each, (count, total) in hot_partitions(samples).items():
        key = facts.common_keys.get(each, "")
        found.append(
            Finding(
                WARN,
                "hot partition",
                f"{count / total:.0%} of what comes into {each[0]} goes to partition {each[1]}"
                + (f"; {key}." if key else "."),
                f"{count:,} of {total:,} records",
                "Choose keys that spread, or split the frequent one."
                if key
                else "Look at the keys of its newest records: one of them is very frequent.",
                each,
            )
        )
    return found


def _throttled(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    """Members that read as much as the quotas of their clients allow."""
    first, now = samples[0], samples[-1]
    over_s = now.moment_s - first.moment_s
    if over_s < _STILL_S or now.lag <= _SMALL_LAG:
        return []
    found = []
    for name, allowed in sorted(facts.allowed_bytes_s.items()):
        read = sum(
            max(now.committed[each] - first.committed.get(each, now.committed[each]), 0)
            * facts.record_bytes.get(each[0], 0.0)
            for each in facts.members.get(name, ())
            if each in now.committed
        )
        if read / over_s >= allowed * _THROTTLED_SHARE:
            found.append(
                Finding(
                    WARN,
                    "throttled",
                    f"A quota holds {name} back: it may read {allowed:,.0f} bytes/s, and reads {read / over_s:,.0f}.",
                    "consumer_byte_rate of its client id, on each broker that it reads from",
                    "Raise the quota on the page Access, or add members with client ids of their own.",
                )
            )
    return found[:3]


def _skewed(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    now = samples[-1]
    total = now.lag
    if len(facts.members) < 2 or total <= _SMALL_LAG:
        return []
    by_member = {
        name: sum(
            max(now.ends.get(each, 0) - now.committed.get(each, 0), 0)
            for each in partitions
            if each in now.committed
        )
        for name, partitions in facts.members.items()
    }
    worst = max(by_member, key=lambda name: by_member[name])
    held = len(facts.members[worst])
    every = sum(len(each) for each in facts.members.values())
    if by_member[worst] / total < _SKEW_SHARE or held * len(facts.members) <= every:
        return []
    return [
        Finding(
            WARN,
            "skewed members",
            f"{worst} has {held} of {every} partitions, and {by_member[worst] / total:.0%} of the lag.",
            "assignments of the members",
            "Use a cooperative or uniform assignor, or the same subscription for all members.",
        )
    ]


def _idle_members(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    idle = [name for name, partitions in facts.members.items() if not partitions]
    if not idle or samples[-1].state not in ("Stable", "STABLE"):
        return []
    count = len(samples[-1].committed)
    have = "has" if len(idle) == 1 else "have"
    there = "there is 1 partition" if count == 1 else f"there are {count} partitions"
    return [
        Finding(
            INFO,
            "idle members",
            f"{len(idle)} of {len(facts.members)} members {have} nothing to read; {there}.",
            ", ".join(sorted(idle)[:3]),
            "Stop them, or give the topic more partitions.",
        )
    ]


def _markers(samples: Sequence[GroupSample], facts: Facts) -> list[Finding]:
    """Unread offsets that no reader gets: the ends of transactions, and what compaction took."""
    now = samples[-1]
    known = [each for partition, each in facts.next_offsets.items() if partition in now.committed]
    offsets, markers, gaps = (sum(column) for column in zip(*known, strict=True)) if known else (0, 0, 0)
    if not offsets or markers + gaps < offsets * _MARKERS_SHARE:
        return []
    parts = [
        f"{count:,} {word if count == 1 else words}"
        for count, word, words in (
            (markers, "is a marker of a transaction", "are markers of transactions"),
            (gaps, "was removed by compaction", "were removed by compaction"),
        )
        if count
    ]
    whole = offsets >= now.lag
    if whole and markers + gaps >= offsets:
        left = "1 offset is" if offsets == 1 else f"{offsets:,} offsets are"
        sentence = f"It has read every record: {left} left, of which {' and '.join(parts)}."
        return [Finding(OK, "markers", sentence, "records at the committed offsets", "Nothing.")]
    which = "unread offsets" if whole else "next offsets"
    sentence = f"Of the {offsets:,} {which}, {' and '.join(parts)}: the lag is less than it looks."
    return [Finding(INFO, "markers", sentence, "records at the committed offsets", "Nothing.")]


def _not_real(samples: Sequence[GroupSample], _: Facts) -> list[Finding]:
    """Commits that are rarer than samples make saw teeth of the lag."""
    if len(samples) < 4 or not samples[-1].members:
        return []
    moves = [later.moment_s for later in samples[1:] if later.moved]
    if len(moves) < 2:
        return []
    every_s = (moves[-1] - moves[0]) / (len(moves) - 1)
    spacing_s = (samples[-1].moment_s - samples[0].moment_s) / (len(samples) - 1)
    if every_s < max(_RARE_COMMITS_S, 1.8 * spacing_s):
        return []
    return [
        Finding(
            INFO,
            "rare commits",
            f"It commits about every {span(every_s)}: the saw teeth of its lag are the time between commits.",
            f"{len(moves)} commits seen in {span(moves[-1] - moves[0])}",
            "Nothing, unless a restart must repeat less.",
        )
    ]
