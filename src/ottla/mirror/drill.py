"""A rehearsal of a failover that changes nothing: what each group would repeat or miss now, and how fast it is back.

What would be lost (RPO) is the age of the oldest record that is not copied. How long a group is away (RTO) is measured
by a real consumer at the target, which reads from where the group would go on and joins no group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.groups import committed_offsets, list_consumer_groups
from ottla.mirror.comparing import next_record, records_of, require_notes, same_record
from ottla.mirror.config import FlowConfig
from ottla.mirror.earlier import EarlierRuns
from ottla.mirror.groups import Copy, GroupPosition, group_positions
from ottla.mirror.looking import copies_of, status_of
from ottla.mirror.topics import mirrored_topics
from ottla.pipeline.writer import Place

_CONSUMER_S: Final = 30.0
_NO_GROUP: Final = "ottla-mirror-drill"
"""librdkafka wants a name; a consumer that is assigned its partitions and commits nothing makes no group."""


@dataclass(frozen=True, slots=True)
class PositionDrill:
    """One group in one partition, if clients moved to the target now."""

    group: str
    topic: str
    partition: int
    offset: int
    remote_offset: int | None
    committed: int | None
    repeated: int = 0
    missed: int = 0
    ahead: int = 0
    same_next: bool = True
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether the group would go on exactly where it is."""
        return not (self.repeated or self.missed or self.problem) and self.same_next


@dataclass(frozen=True, slots=True)
class Drill:
    """The result for one flow."""

    flow: str
    positions: tuple[PositionDrill, ...]
    rpo_records: int
    rpo_s: float
    rto_s: Mapping[str, float]
    """By group."""
    stopped: tuple[str, ...] = ()
    """Why partitions cannot go on: what they got since would be lost."""

    @property
    def passed(self) -> bool:
        """Whether no group would repeat or miss a record, and every partition is copied."""
        return not self.stopped and all(one.passed for one in self.positions)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "flow": self.flow,
            "passed": self.passed,
            "rpo": {"records": self.rpo_records, "seconds": self.rpo_s},
            "stopped": list(self.stopped),
            "rto": dict(self.rto_s),
            "positions": [asdict(one) for one in self.positions],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        groups = list(dict.fromkeys(one.group for one in self.positions))
        yield f"{self.flow}: {len(groups)} groups, {len(self.positions)} positions"
        yield f"  RPO: {self.rpo_records:,} records are not copied yet, the oldest is {self.rpo_s:.1f} s old"
        for sentence in self.stopped:
            yield f"  stopped: {sentence}"
        for group in groups:
            own = [one for one in self.positions if one.group == group]
            repeated, missed = sum(one.repeated for one in own), sum(one.missed for one in own)
            rto = self.rto_s.get(group)
            after = "no consumer could read" if rto is None else f"a consumer reads after {rto:.2f} s"
            yield f"  {group}: repeats {repeated:,} records, misses {missed:,}; {after} (RTO)"
            for one in own:
                if one.problem:
                    yield f"    {one.topic}-{one.partition}: {one.problem}"
                elif not one.same_next:
                    yield f"    {one.topic}-{one.partition}: the next record differs at the two sides"
        yield "  passed" if self.passed else "  failed: move no clients now"


def drill_flow(flow: FlowConfig, client: Mapping[str, str], groups: Iterable[str] | None = None) -> Drill:
    """Rehearse a failover of all groups that a flow mirrors, or of some."""
    source, target = Cluster(flow.source_settings), Cluster(flow.target_settings)
    try:
        require_notes(flow, target)
        copies = copies_of(flow, source, target)
        going = {place: copy for place, copy in copies.items() if copy.stopped is None}
        wanted = None if groups is None else set(groups)
        earlier = EarlierRuns(source, target)
        found = [
            one
            for one in group_positions(flow, source, going, earlier=earlier)
            if wanted is None or one.group in wanted
        ]
        with_target = _with_target(target, found)
        positions = [_position((source, target), one, copies[one.place]) for one in with_target]
        positions += [
            one for one in _not_copied(flow, source, copies) if wanted is None or one.group in wanted
        ]
        rto_s: dict[str, float] = {}
        for group in dict.fromkeys(one.group for one in with_target):
            took = first_read_s([one for one in with_target if one.group == group], client)
            if took is not None:
                rto_s[group] = took
    finally:
        source.close()
        target.close()
    status = status_of(flow, time.time_ns() // 1_000_000)
    return Drill(flow.name, tuple(positions), status.lag, status.lag_s, rto_s, tuple(status.stopped))


def _not_copied(flow: FlowConfig, source: Cluster, copies: Mapping[Place, Copy]) -> list[PositionDrill]:
    """Positions in partitions that the mirror has not begun with or that stopped: their groups cannot move."""
    topics, wanted = mirrored_topics(flow, source), flow.group_filter()
    return [
        PositionDrill(
            listed.group_id,
            topic,
            partition,
            committed.offset,
            None,
            None,
            problem="it has stopped" if Place(topic, partition) in copies else "it is not copied yet",
        )
        for listed in list_consumer_groups(source)
        if listed.group_id in wanted
        for (topic, partition), committed in committed_offsets(source, listed.group_id).items()
        if topic in topics and _is_away(copies.get(Place(topic, partition)))
    ]


def _is_away(copy: Copy | None) -> bool:
    return copy is None or copy.stopped is not None


def _with_target(target: Cluster, positions: Iterable[GroupPosition]) -> list[GroupPosition]:
    """The positions with what the groups have committed at the target."""
    listed = list(positions)
    there = {group: committed_offsets(target, group) for group in {one.group for one in listed}}
    found: list[GroupPosition] = []
    for one in listed:
        committed = there[one.group].get((one.remote.topic, one.remote.partition))
        found.append(replace(one, target=None if committed is None else committed.offset))
    return found


def _position(sides: tuple[Cluster, Cluster], one: GroupPosition, copy: Copy) -> PositionDrill:
    source, target = sides
    result = PositionDrill(one.group, *one.place, one.upstream, one.downstream, one.target, ahead=one.ahead)
    if one.downstream is None:
        return replace(result, problem="its position was copied before this mirror's notes begin")
    if one.target is None:
        return replace(
            result, problem="it has no position at the target: it would begin at auto.offset.reset"
        )
    repeated = _count(target, one.remote, one.target, one.downstream)
    missed = _count(target, one.remote, one.downstream, one.target)
    mine = next_record(source, one.place, one.upstream, copy.upstream)
    twin = next_record(target, one.remote, one.downstream, copy.downstream)
    same = (mine is None and twin is None) or (
        mine is not None and twin is not None and same_record(mine, twin)
    )
    return replace(result, repeated=repeated, missed=missed, same_next=same)


def _count(cluster: Cluster, place: Place, start: int, end: int) -> int:
    """How many records lie between two offsets; markers and gaps do not count."""
    return sum(1 for _ in records_of(cluster, place, start, end))


def first_read_s(positions: list[GroupPosition], client: Mapping[str, str]) -> float | None:
    """How long a new consumer takes until it has read from, or stands at the end of, each of a group's partitions.

    None if it could not. It is assigned its partitions, so that no group comes to be.
    """
    from confluent_kafka import KafkaError, TopicPartition

    from ottla.cli.tools import engine
    from ottla.cli.tools.base import Session

    places = [
        TopicPartition(one.remote.topic, one.remote.partition, one.downstream)
        for one in positions
        if one.downstream is not None
    ]
    left = {(place.topic, place.partition) for place in places}
    began = time.monotonic()
    session = Session(client["bootstrap.servers"], dict(client), as_json=False, to_controllers=False)
    settings = engine.settings(session, {}, group_id=_NO_GROUP, enable_auto_commit=False)
    consumer = engine.consumer({**settings, "enable.partition.eof": True})
    try:
        consumer.assign(places)
        while left and time.monotonic() - began < _CONSUMER_S:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic() or "", message.partition() or 0))
        return None if left else time.monotonic() - began
    finally:
        consumer.close()
