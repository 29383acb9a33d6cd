"""Where a target ends: compares what it holds after the last note with the source, record by record.

After an unclean end nobody knows how much a lane had written. The target itself does: its tail is a copy of the
source's next records, and where it ends the copying goes on. Nothing is lost, nothing is written twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from ottla.admin.cluster import Cluster
from ottla.mirror.compacted_tails import match_compacted
from ottla.mirror.copying import Piece, pieces
from ottla.mirror.failures import PartitionStopped, ends_early
from ottla.mirror.runs import Run, RunMap
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.writer import Place
from ottla.records.batch import HEADER_SIZE, BatchHeader, Buffer, iter_records, pack_header
from ottla.records.record import Record

_STALL_S = 60.0


@dataclass(slots=True)
class Tail:
    """Where both sides go on, and the runs that the tail showed."""

    upstream: int
    downstream: int
    records: int = 0
    foreign: int = 0
    runs: RunMap = field(default_factory=RunMap)

    def added_runs(self) -> tuple[Run, ...]:
        """The runs of the tail."""
        return tuple(self.runs)


@dataclass(frozen=True, slots=True)
class TailQuestion:
    """A partition at both sides, the pair of offsets up to which all is known, and what the lane was allowed."""

    place: Place
    remote: Place
    upstream: int
    downstream: int
    max_batch_bytes: int
    resume: bool = False
    """Whether records that the source does not have are passed over: others wrote them."""
    compacts: bool = False
    """Whether cleaners may have removed records at either side since."""


def read_tail(source: Cluster, target: Cluster, question: TailQuestion) -> Tail:
    """Compares the target's records from the known place on with the source's; PartitionStopped if they differ."""
    where = question.remote
    end = list_offsets(target, {where: LATEST}, isolation=READ_UNCOMMITTED)[where]
    tail = Tail(question.upstream, question.downstream)
    if end < question.downstream:
        raise PartitionStopped(ends_early(where, end, question.downstream))
    if end > question.downstream:
        first = list_offsets(source, {question.place: EARLIEST}, isolation=READ_UNCOMMITTED)[question.place]
        begin = max(first, question.upstream)
        upstream = _upstream(source, question, begin)
        tail.upstream = begin
        try:
            walk = compare_compacted if question.compacts else compare
            walk(tail, question, _downstream(target, question, end), upstream)
        finally:
            upstream.close()
    tail.downstream = end
    return tail


def _downstream(
    target: Cluster, question: TailQuestion, end: int
) -> Iterator[tuple[Buffer, int, BatchHeader]]:
    wanted = OffsetRange(question.remote.topic, question.remote.partition, question.downstream, end)
    limits = FetchLimits(stall_s=_STALL_S)
    for found in fetch_ranges(target, [wanted], isolation=READ_UNCOMMITTED, limits=limits):
        for at, header in found.batches:
            yield found.data, at, header


def _upstream(source: Cluster, question: TailQuestion, begin: int) -> Generator[Piece, None, None]:
    place = question.place
    end = list_offsets(source, {place: LATEST}, isolation=READ_COMMITTED)[place]
    wanted = OffsetRange(place.topic, place.partition, begin, end)
    limits = FetchLimits(stall_s=_STALL_S)
    for found in fetch_ranges(source, [wanted], isolation=READ_COMMITTED, limits=limits):
        yield from pieces(found, question.max_batch_bytes)


def compare(
    tail: Tail,
    question: TailQuestion,
    downstream: Iterator[tuple[Buffer, int, BatchHeader]],
    upstream: Iterator[Piece],
) -> None:
    """Walks over the tail and the source's next batches together."""
    waiting: deque[tuple[int, Record]] = deque()
    """Records of a source's batch of which the target has a part so far."""
    after = tail.upstream
    # The source has deleted records that were copied but not noted: the tail begins with copies of those.
    lead_in = tail.upstream > question.upstream
    for data, at, header in downstream:
        if not waiting:
            piece = next(upstream, None)
            if piece is not None:
                if _same_bytes(piece, data, at, header):
                    lead_in = False
                    _add(tail, piece, header.base_offset)
                    continue
                waiting.extend(_records(piece))
                after = piece.next_upstream
        for record in iter_records(data, at, header):
            if record.offset < question.downstream:
                continue
            if not waiting and (piece := next(upstream, None)) is not None:
                waiting.extend(_records(piece))
                after = piece.next_upstream
            if waiting and _same(waiting[0][1], record, keep_time=not header.timestamp_type):
                lead_in = False
                offset, _ = waiting.popleft()
                tail.runs.add(offset, record.offset, 1)
                tail.records += 1
                tail.upstream = waiting[0][0] if waiting else after
            elif question.resume or lead_in:
                tail.foreign += 1
            else:
                raise _differs(question, record, waiting[0][0] if waiting else tail.upstream)


def compare_compacted(
    tail: Tail,
    question: TailQuestion,
    downstream: Iterator[tuple[Buffer, int, BatchHeader]],
    upstream: Iterator[Piece],
) -> None:
    """The same where cleaners may have removed records at either side."""
    found = match_compacted(
        (
            (record, not header.timestamp_type)
            for data, at, header in downstream
            for record in iter_records(data, at, header)
            if record.offset >= question.downstream
        ),
        (one for piece in upstream for one in _records(piece)),
        lead_in=tail.upstream > question.upstream,
    )
    for wrong, where in ((found.foreign, question.remote), (found.missing, question.place)):
        if wrong is not None and not question.resume:
            raise PartitionStopped(
                f"{where.topic}-{where.partition} holds at offset {wrong} a record that its other side lacks, without "
                "a newer one of the same key there: others wrote to the copy. Stop them and set "
                "on.foreign.records=resume, or delete the topic at the target"
            )
    for offset, copied in found.pairs:
        tail.runs.add(offset, copied, 1)
        tail.upstream = offset + 1
    tail.records, tail.foreign = len(found.pairs), found.unmatched


def _same_bytes(piece: Piece, data: Buffer, at: int, header: BatchHeader) -> bool:
    body = memoryview(data)[at + HEADER_SIZE : at + header.size_in_bytes]
    theirs, ours = header, piece.header
    return (
        (theirs.count, theirs.attributes, theirs.base_timestamp, theirs.last_offset_delta)
        == (ours.count, ours.attributes & 0x07, ours.base_timestamp, ours.count - 1)
    ) and body == piece.body


def _add(tail: Tail, piece: Piece, downstream: int) -> None:
    for upstream, count in piece.spans:
        tail.runs.add(upstream, downstream, count)
        downstream += count
    tail.records += piece.count
    tail.upstream = piece.next_upstream


def _records(piece: Piece) -> Iterator[tuple[int, Record]]:
    """The records of a piece with their offsets at the source."""
    offsets = [first + number for first, count in piece.spans for number in range(count)]
    data = pack_header(piece.header._replace(length=HEADER_SIZE - 12 + len(piece.body))) + bytes(piece.body)
    return zip(offsets, iter_records(data), strict=True)


def _same(one: Record, other: Record, *, keep_time: bool) -> bool:
    if (one.key, one.value, tuple(one.headers)) != (other.key, other.value, tuple(other.headers)):
        return False
    return not keep_time or one.timestamp == other.timestamp


def _differs(question: TailQuestion, record: Record, upstream: int) -> PartitionStopped:
    return PartitionStopped(
        f"{question.remote.topic}-{question.remote.partition} holds at offset {record.offset} another record than "
        f"{question.place.topic}-{question.place.partition} at offset {upstream}: others wrote there. Stop them and "
        "set on.foreign.records=resume, or delete the topic at the target"
    )
