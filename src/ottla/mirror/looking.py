"""What a mirror would make, how far it is, and where groups stand: read from both clusters, changing nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from ottla.admin.cluster import Cluster
from ottla.errors import ApiException, ErrorCode
from ottla.mirror.comparing import require_notes
from ottla.mirror.config import FlowConfig
from ottla.mirror.earlier import EarlierRuns
from ottla.mirror.epochs import went_back
from ottla.mirror.failures import ends_early, is_empty, made_again
from ottla.mirror.groups import Copy, GroupPosition, group_positions
from ottla.mirror.ledger import Ledger, Note
from ottla.mirror.topics import MirroredTopic, is_another, mirrored_topics
from ottla.pipeline.fetching import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.writer import Place

Json = dict[str, object]


@contextmanager
def _clusters(flow: FlowConfig) -> Iterator[tuple[Cluster, Cluster]]:
    source, target = Cluster(flow.source_settings), Cluster(flow.target_settings)
    try:
        yield source, target
    finally:
        source.close()
        target.close()


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a flow would mirror and make."""

    flow: str
    topics: tuple[MirroredTopic, ...]
    create: tuple[str, ...]
    grow: tuple[str, ...]
    groups: tuple[str, ...]

    def as_dict(self) -> Json:
        """For JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.flow}: {len(self.topics)} topics, {sum(one.partitions for one in self.topics)} partitions"
        for topic in self.topics:
            does = (
                "create" if topic.remote in self.create else "grow" if topic.remote in self.grow else "there"
            )
            yield f"  {topic.name} -> {topic.remote}  {topic.partitions} partitions  {does}"
        if self.groups:
            yield f"  groups: {', '.join(self.groups)}"


def plan_of(flow: FlowConfig) -> Plan:
    """What a flow would do now."""
    from ottla.admin.groups import list_consumer_groups

    with _clusters(flow) as (source, target):
        topics = mirrored_topics(flow, source)
        there = {one.name or "": len(one.partitions) for one in target.metadata(None).topics}
        wanted = flow.group_filter()
        groups = [one.group_id for one in list_consumer_groups(source) if one.group_id in wanted]
    return Plan(
        flow.name,
        tuple(topics.values()),
        tuple(one.remote for one in topics.values() if one.remote not in there),
        tuple(
            one.remote for one in topics.values() if there.get(one.remote, one.partitions) < one.partitions
        ),
        tuple(groups),
    )


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a partition is copied."""

    topic: str
    partition: int
    copied_to: int
    source_end: int
    lag: int
    lag_s: float
    """Age of the first record that is not copied."""
    noted: bool
    stopped: str | None = None
    """Why it cannot go on by itself."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """How far a flow is, by its notes at the target."""

    flow: str
    partitions: tuple[PartitionStatus, ...] = field(default=())

    @property
    def lag(self) -> int:
        """Offsets that are not copied yet."""
        return sum(one.lag for one in self.partitions)

    @property
    def lag_s(self) -> float:
        """The age of the oldest record that is not copied yet."""
        return max((one.lag_s for one in self.partitions), default=0.0)

    @property
    def stopped(self) -> list[str]:
        """Why partitions cannot go on, one sentence for each."""
        return [one.stopped for one in self.partitions if one.stopped]

    def as_dict(self) -> Json:
        """For JSON."""
        return {
            "flow": self.flow,
            "lag": self.lag,
            "lag_s": self.lag_s,
            "partitions": [asdict(one) for one in self.partitions],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        waits = f", {len(self.stopped)} of {len(self.partitions)} partitions stopped" if self.stopped else ""
        yield f"{self.flow}: lag {self.lag:,} records, {self.lag_s:.1f} s{waits}"
        rows = [("TOPIC", "PARTITION", "COPIED", "END", "LAG", "SECONDS")]
        rows += [
            (
                one.topic,
                str(one.partition),
                str(one.copied_to) if one.noted else "-",
                str(one.source_end),
                str(one.lag),
                f"{one.lag_s:.1f}",
            )
            for one in self.partitions
        ]
        yield from _table(rows)
        for sentence in self.stopped:
            yield f"  stopped: {sentence}"


def copies_of(flow: FlowConfig, source: Cluster, target: Cluster) -> dict[Place, Copy]:
    """What the notes and runs at the target say of the source's partitions; none before the mirror's first run."""
    ledger = Ledger(flow)
    try:
        ledger.look()
        topics, policy = mirrored_topics(flow, source), flow.policy
        notes = {
            place: note
            for place, note in ledger.notes.items()
            if note.target is not None
            and place.topic in topics
            and place.partition < topics[place.topic].partitions
        }
        remotes = {
            place: Place(policy.remote_topic(flow.source, place.topic), place.partition) for place in notes
        }
        stopped = _stopped(flow, notes, remotes, topics, (source, target))
        return {
            place: Copy(
                remotes[place],
                note.offset + 1,
                (note.target or 0) + 1,
                ledger.map_of(place),
                stopped.get(place),
            )
            for place, note in notes.items()
        }
    except ApiException as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return {}
        raise
    finally:
        ledger.close()


def _stopped(
    flow: FlowConfig,
    notes: Mapping[Place, Note],
    remotes: Mapping[Place, Place],
    topics: Mapping[str, MirroredTopic],
    sides: tuple[Cluster, Cluster],
) -> dict[Place, str]:
    """Why partitions cannot go on: what the mirror noted, and what it would find when it starts now."""
    source, target = sides
    there = {topic.name or "": len(topic.partitions) for topic in target.metadata(None).topics}
    copied = [place for place in notes if remotes[place].partition < there.get(remotes[place].topic, 0)]
    source_ends = list_offsets(source, dict.fromkeys(notes, LATEST), isolation=READ_UNCOMMITTED)
    ends = list_offsets(
        target, dict.fromkeys([remotes[place] for place in copied], LATEST), isolation=READ_UNCOMMITTED
    )
    found: dict[Place, str] = {}
    for place, note in notes.items():
        remote, upstream, downstream = remotes[place], note.offset + 1, (note.target or 0) + 1
        if is_another(note.topic_id, topics[place.topic].topic_id):
            found[place] = made_again(place)
        elif source_ends[place] < upstream:
            found[place] = went_back(place, source_ends[place], upstream)
        elif downstream and not ends.get(remote, 0):
            found[place] = is_empty(remote)
        elif ends.get(remote, 0) < downstream and not flow.identical:
            found[place] = ends_early(remote, ends[remote], downstream)
        elif note.stopped:
            found[place] = note.stopped
    return found


def status_of(flow: FlowConfig, now_ms: int) -> FlowStatus:
    """How far a flow is."""
    with _clusters(flow) as (source, target):
        topics = mirrored_topics(flow, source)
        places = [Place(one.name, number) for one in topics.values() for number in range(one.partitions)]
        ends = list_offsets(source, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
        copies = copies_of(flow, source, target)
        found = []
        for place in places:
            copy = copies.get(place)
            copied_to = copy.upstream if copy is not None else 0
            lag = max(0, ends[place] - copied_to)
            lag_s = _age_s(source, place, copied_to, ends[place], now_ms) if lag else 0.0
            stopped = None if copy is None else copy.stopped
            found.append(
                PartitionStatus(*place, copied_to, ends[place], lag, lag_s, copy is not None, stopped)
            )
    return FlowStatus(flow.name, tuple(found))


def _age_s(source: Cluster, place: Place, start: int, end: int, now_ms: int) -> float:
    """How long ago the first record from an offset on was written; 0 if there is none."""
    limits = FetchLimits(max_bytes=1, partition_max_bytes=1, max_wait_ms=0, stall_s=5.0)
    try:
        for found in fetch_ranges(source, [OffsetRange(*place, start, end)], limits=limits):
            for _, header in found.batches:
                # Messages of the oldest format have no time.
                return max(0.0, (now_ms - header.max_timestamp) / 1000) if header.max_timestamp >= 0 else 0.0
    except ApiException as error:
        if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
            raise
    return 0.0


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group's positions at both sides."""

    flow: str
    group: str
    positions: tuple[GroupPosition, ...]

    def as_dict(self) -> Json:
        """For JSON."""
        return {
            "flow": self.flow,
            "group": self.group,
            "positions": [
                {
                    "topic": one.place.topic,
                    "partition": one.place.partition,
                    "offset": one.upstream,
                    "remoteTopic": one.remote.topic,
                    "remoteOffset": one.downstream,
                    "committed": one.target,
                    "ahead": one.ahead,
                }
                for one in self.positions
            ],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.flow}: group {self.group}"
        rows = [("TOPIC", "PARTITION", "OFFSET", "REMOTE TOPIC", "REMOTE OFFSET", "COMMITTED", "AHEAD")]
        rows += [
            (
                one.place.topic,
                str(one.place.partition),
                str(one.upstream),
                one.remote.topic,
                "?" if one.downstream is None else str(one.downstream),
                "-" if one.target is None else str(one.target),
                str(one.ahead),
            )
            for one in self.positions
        ]
        yield from _table(rows)


def offsets_of(flow: FlowConfig, group: str) -> GroupOffsets:
    """Where a group stands."""
    from dataclasses import replace

    from ottla.admin.groups import committed_offsets

    with _clusters(flow) as (source, target):
        require_notes(flow, target)
        found = group_positions(
            flow, source, copies_of(flow, source, target), group, earlier=EarlierRuns(source, target)
        )
        there = committed_offsets(target, group)
        positions = []
        for one in found:
            committed = there.get((one.remote.topic, one.remote.partition))
            positions.append(replace(one, target=None if committed is None else committed.offset))
    return GroupOffsets(flow.name, group, tuple(positions))
