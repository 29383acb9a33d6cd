"""Compares a partition with its copy, record by record: where both must hold the same, by the map of runs.

A compacted topic may have lost a record at one side only. Everywhere else a record without its twin is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.admin.cluster import Cluster
from ottla.mirror.config import FlowConfig
from ottla.mirror.failures import MirrorError
from ottla.mirror.runs import RunMap
from ottla.pipeline.fetching import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.writer import Place
from ottla.records.batch import CREATE_TIME, iter_records
from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.mirror.groups import Copy

_STALL_S: Final = 60.0
_ONE_BATCH: Final = 1 << 10


class Held(NamedTuple):
    """A record, and whether its time is the writer's own."""

    record: Record
    keeps_time: bool


@dataclass(slots=True)
class Comparison:
    """What comparing a partition with its copy showed."""

    place: Place
    remote: Place
    source_records: int = 0
    target_records: int = 0
    equal: int = 0
    compacted: int = 0
    """Records that compaction removed at one side only."""
    differences: int = 0
    first_difference: str = ""

    def differ(self, sentence: str) -> None:
        """Count a difference, and keep the first one's sentence."""
        self.differences += 1
        self.first_difference = self.first_difference or sentence


def require_notes(flow: FlowConfig, target: Cluster) -> None:
    """Refuse a flow that has not run yet: it has no notes to compare by, and looking must not make them."""
    there = {topic.name for topic in target.metadata(None).topics}
    if flow.offsets_topic not in there or flow.runs_topic not in there:
        raise MirrorError(f"{flow.name} has not run yet: {flow.target} holds none of its notes. Run it first")


def same_record(one: Held, other: Held) -> bool:
    """Whether two records are equal, byte by byte; times count where neither broker has set its own."""
    ours, theirs = one.record, other.record
    if (ours.key, ours.value, tuple(ours.headers)) != (theirs.key, theirs.value, tuple(theirs.headers)):
        return False
    return not (one.keeps_time and other.keeps_time) or ours.timestamp == theirs.timestamp


def records_of(
    cluster: Cluster,
    place: Place,
    start: int,
    end: int,
    *,
    few: bool = False,
    isolation: int = READ_COMMITTED,
) -> Iterator[Held]:
    """The records of a range of offsets, committed ones by default; `few` asks for little at a time."""
    if start >= end:
        return
    size = {"max_bytes": _ONE_BATCH, "partition_max_bytes": _ONE_BATCH} if few else {}
    limits = FetchLimits(stall_s=_STALL_S, **size)
    for found in fetch_ranges(cluster, [OffsetRange(*place, start, end)], isolation=isolation, limits=limits):
        for at, header in found.batches:
            for record in iter_records(found.data, at, header):
                if start <= record.offset < end:
                    yield Held(record, header.timestamp_type == CREATE_TIME)


def next_record(cluster: Cluster, place: Place, offset: int, end: int) -> Held | None:
    """The first record at or after an offset."""
    return next(records_of(cluster, place, offset, end, few=True), None)


def compare_all(sides: tuple[Cluster, Cluster], place: Place, copy: Copy, *, compacts: bool) -> Comparison:
    """Every record that both sides should have."""
    source, target = sides
    found = Comparison(place, copy.remote)
    start, downstream = _common_start(sides, place, copy)
    ours = records_of(source, place, start, copy.upstream)
    theirs = records_of(target, copy.remote, downstream, copy.downstream)
    match(found, ours, theirs, copy.runs, compacts=compacts)
    return found


def match(
    found: Comparison, ours: Iterator[Held], theirs: Iterator[Held], runs: RunMap, *, compacts: bool
) -> None:
    """Pair the records of both sides by their offsets, in order, and compare each pair."""
    place, remote = found.place, found.remote
    mine, twin = next(ours, None), next(theirs, None)
    while mine is not None or twin is not None:
        wanted = None if mine is None else runs.translate(mine.record.offset)
        there = None if twin is None else twin.record.offset
        if mine is not None and twin is not None and wanted == there:
            found.source_records += 1
            found.target_records += 1
            if same_record(mine, twin):
                found.equal += 1
            else:
                found.differ(_differs(place, mine, remote, twin))
            mine, twin = next(ours, None), next(theirs, None)
        elif mine is not None and (there is None or (wanted is not None and wanted < there)):
            found.source_records += 1
            _alone(
                found,
                f"{place.topic}-{place.partition} offset {mine.record.offset} has no copy",
                compacts=compacts,
            )
            mine = next(ours, None)
        elif twin is not None:
            found.target_records += 1
            sentence = (
                f"{remote.topic}-{remote.partition} offset {twin.record.offset} is the copy of no record"
            )
            _alone(found, sentence, compacts=compacts)
            twin = next(theirs, None)


def _alone(found: Comparison, sentence: str, *, compacts: bool) -> None:
    if compacts:
        found.compacted += 1
    else:
        found.differ(sentence)


def compare_sample(
    sides: tuple[Cluster, Cluster], place: Place, copy: Copy, count: int, *, compacts: bool
) -> Comparison:
    """Some records, evenly spread over the copy."""
    source, target = sides
    found = Comparison(place, copy.remote)
    start, _ = _common_start(sides, place, copy)
    for offset in spread(start, copy.upstream, count):
        mine = next_record(source, place, offset, copy.upstream)
        if mine is None:
            continue
        found.source_records += 1
        wanted = copy.runs.translate(mine.record.offset)
        twin = None if wanted is None else next_record(target, copy.remote, wanted, copy.downstream)
        if twin is None or twin.record.offset != wanted:
            _alone(
                found,
                f"{place.topic}-{place.partition} offset {mine.record.offset} has no copy",
                compacts=compacts,
            )
            continue
        found.target_records += 1
        if same_record(mine, twin):
            found.equal += 1
        else:
            found.differ(_differs(place, mine, copy.remote, twin))
    return found


def spread(start: int, end: int, count: int) -> list[int]:
    """So many offsets of a range, evenly, the first and the last among them."""
    length = end - start
    if length <= 0 or count <= 0:
        return []
    if count >= length:
        return list(range(start, end))
    if count == 1:
        return [start]
    return sorted({start + (length - 1) * number // (count - 1) for number in range(count)})


def _common_start(sides: tuple[Cluster, Cluster], place: Place, copy: Copy) -> tuple[int, int]:
    """Where both sides begin to hold the same: each may have deleted old records."""
    source, target = sides
    first = next(iter(copy.runs), None)
    if first is None:
        return copy.upstream, copy.downstream
    upstream = list_offsets(source, {place: EARLIEST}, isolation=READ_UNCOMMITTED)[place]
    downstream = list_offsets(target, {copy.remote: EARLIEST}, isolation=READ_UNCOMMITTED)[copy.remote]
    upstream = max(upstream, first.upstream, copy.runs.translate_back(downstream) or 0)
    return upstream, max(downstream, copy.runs.translate(upstream) or 0)


def _differs(place: Place, mine: Held, remote: Place, twin: Held) -> str:
    return (
        f"{place.topic}-{place.partition} offset {mine.record.offset} is not the record at offset "
        f"{twin.record.offset} of {remote.topic}-{remote.partition}"
    )
