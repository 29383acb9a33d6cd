"""A lane: copies the batches of its share of partitions for one cycle, inside a Spark task or a thread.

It reads with long polls while the batches before are on their way to the target. It ends with all of them written, and
reports where both sides stand. An exception means that nobody knows how far it came: the driver then fences the lane.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.mirror.copying import Piece, Span, pieces, sealed
from ottla.mirror.epochs import NO_EPOCH, Epoch, end_of_epoch, lost_offsets, went_back
from ottla.mirror.failures import unreadable
from ottla.mirror.ownership import Identity
from ottla.mirror.runs import Run, RunMap
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchedBatches,
    Fetcher,
    FetchLimits,
    OffsetGone,
    UnreadableBatch,
    list_offsets,
)
from ottla.pipeline.writer import BatchWriter, Grant, Place, RefusedBatch
from ottla.records.batch import CorruptBatchError
from ottla.records.codecs import UnpackError
from ottla.records.record import InvalidRecordError

_logger = logging.getLogger(__name__)

_POLL_MS: Final = 250
"""How long a lane may take to notice that it shall end."""
_RETRY_S: Final = 60.0
_PACE_S: Final = 0.007
"""The least time between two reads while little comes: a read and a write for each batch of a trickle cost CPU."""
_LITTLE_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, the next offset that the target gives, and the next sequence number there."""

    upstream: int
    downstream: int
    sequence: int = 0
    epoch: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Share:
    """What one lane copies in one cycle. Plain values: Spark sends it to a task."""

    lane: int
    source: ClusterSettings
    target: ClusterSettings
    identity: Identity
    positions: Mapping[Place, Position]
    """By the partition at the source."""
    remote: Mapping[str, str]
    """The target's name of each topic."""
    max_batch_bytes: Mapping[str, int]
    """By the source's name of the topic."""
    cycle_ms: int
    resume: bool = False
    """Whether records of others at the target are passed over."""
    until: Mapping[Place, int] | None = None
    """Where to end; None follows the source."""
    keep_offsets: frozenset[str] = frozenset()
    """The source's names of topics whose copies keep the offsets."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a lane did with a partition."""

    place: Place
    position: Position
    runs: tuple[Run, ...] = ()
    records: int = 0
    size: int = 0
    rebuilt: int = 0
    source_end: int = -1
    """The end of what can be copied there, as far as the lane knows."""
    stopped: str | None = None
    """Why the partition cannot go on."""


@dataclass(slots=True)
class _Partition:
    place: Place
    remote: Place
    read_to: int
    done: int
    downstream: int
    runs: RunMap = field(default_factory=RunMap)
    epoch: Epoch = NO_EPOCH
    sent: deque[tuple[tuple[Span, ...], int]] = field(default_factory=deque)
    records: int = 0
    size: int = 0
    rebuilt: int = 0
    source_end: int = -1
    stopped: str | None = None
    unread: int | None = None
    """Where a batch begins that cannot be read."""


@dataclass(frozen=True, slots=True)
class LaneOutcome:
    """A cycle of a lane: what it copied, or why it ended in the middle."""

    lane: int
    parts: tuple[Copied, ...] = ()
    failure: str | None = None
    code: ErrorCode = ErrorCode.NONE
    refused: Place | None = None
    """The partition of the target that refused a batch for good."""


def run_lane(share: Share, source: Cluster, target: Cluster, ended: Callable[[], bool]) -> LaneOutcome:
    """One cycle of a share; a failure is part of the outcome."""
    try:
        return LaneOutcome(share.lane, tuple(Lane(share, source, target).copy(ended)))
    except RefusedBatch as error:
        return LaneOutcome(share.lane, (), error.message, error.code, error.place)
    except ApiException as error:
        return LaneOutcome(share.lane, (), error.message, error.code)


class Lane:
    """One cycle of a share. The two clusters are the lane's own while it runs."""

    def __init__(self, share: Share, source: Cluster, target: Cluster) -> None:
        self._share = share
        self._source = source
        self._parts = {
            place: _Partition(
                place,
                Place(share.remote[place.topic], place.partition),
                position.upstream,
                position.upstream,
                position.downstream,
                epoch=position.epoch,
            )
            for place, position in share.positions.items()
        }
        self._by_remote = {part.remote: part for part in self._parts.values()}
        grant = Grant(
            share.target, producer_id=share.identity.producer_id, epoch=share.identity.epoch, retry_s=_RETRY_S
        )
        sequences = {self._parts[place].remote: one.sequence for place, one in share.positions.items()}
        self._writer = BatchWriter(target, grant, sequences, self._written)
        self._fetcher = Fetcher(
            source, isolation=READ_COMMITTED, limits=FetchLimits(max_wait_ms=_POLL_MS, retry_s=_RETRY_S)
        )

    def copy(self, ended: Callable[[], bool]) -> list[Copied]:
        """Copies until the cycle is over, all ends are reached, or `ended` says so."""
        deadline = time.monotonic() + self._share.cycle_ms / 1000
        with ThreadPoolExecutor(1, "mirror-fetch") as pool:

            def next_read(pause_s: float) -> Future[list[FetchedBatches]] | None:
                left_ms = int((deadline - time.monotonic()) * 1000)
                positions = self._positions()
                if left_ms <= 0 or ended():
                    positions = {}
                if not positions and not self._fetcher.in_flight:
                    return None
                return pool.submit(self._read, positions, pause_s, min(_POLL_MS, left_ms))

            reading = next_read(0.0)
            while reading is not None:
                try:
                    found = reading.result()
                except OffsetGone as gone:
                    self._gone(gone)
                    found = []
                except UnreadableBatch as error:
                    self._parts[error.place].stopped = unreadable(error.message)
                    found = []
                # A partition that stopped while its next read was under way takes no more.
                found = [one for one in found if self._part(one).stopped is None and self._goes_on(one)]
                for one in found:
                    self._part(one).read_to = one.next_offset
                reading = next_read(_PACE_S if self._is_little(found) else 0.0)
                for one in found:
                    self._write(one)
                self._writer.flush()
                for one in found:
                    part = self._part(one)
                    part.done = one.next_offset if part.unread is None else part.unread
        return [self._report(part) for part in self._parts.values()]

    def _read(self, positions: Mapping[Place, int], pause_s: float, wait_ms: int) -> list[FetchedBatches]:
        if pause_s:
            time.sleep(pause_s)
        return self._fetcher.poll_any(positions, wait_ms, self._share.until)

    def _is_little(self, found: list[FetchedBatches]) -> bool:
        """Whether a read brought some records, but so few that more come before the next one is worth its cost."""
        return self._share.until is None and 0 < sum(len(one.data) for one in found) < _LITTLE_BYTES

    def _positions(self) -> dict[Place, int]:
        until = self._share.until
        return {
            place: part.read_to
            for place, part in self._parts.items()
            if part.stopped is None and (until is None or part.read_to < until.get(place, 0))
        }

    def _part(self, found: FetchedBatches) -> _Partition:
        return self._parts[Place(found.topic, found.partition)]

    def _write(self, found: FetchedBatches) -> None:
        part = self._part(found)
        part.source_end = max(part.source_end, found.last_stable_offset)
        keep = found.topic in self._share.keep_offsets
        part.unread = part.done
        try:
            self._write_pieces(part, found, keep=keep)
        except (CorruptBatchError, InvalidRecordError, UnpackError) as error:
            place = f"{part.place.topic}-{part.place.partition}"
            part.stopped = unreadable(f"{place} cannot be read from offset {part.unread} on: {error.message}")
            return
        part.unread = None

    def _write_pieces(self, part: _Partition, found: FetchedBatches, *, keep: bool) -> None:
        for piece in pieces(found, self._share.max_batch_bytes[found.topic], keep_offsets=keep):
            sequence = self._writer.sequence(part.remote)
            header = sealed(piece, self._share.identity, sequence, keep_offsets=keep)
            if keep:
                # Sequence numbers follow offsets, holes included.
                spans: tuple[Span, ...] = ((piece.header.base_offset, piece.span),)
            else:
                spans = tuple(piece.spans)
            number = sum(count for _, count in spans)
            part.sent.append((spans, number))
            self._count(part, piece)
            self._writer.add_batch(part.remote, [header, memoryview(piece.body)], number)
            part.unread = piece.next_upstream

    @staticmethod
    def _count(part: _Partition, piece: Piece) -> None:
        part.records += piece.count
        part.size += piece.size
        part.rebuilt += piece.rebuilt

    def _written(self, remote: Place, base_offset: int, count: int) -> None:
        part = self._by_remote[remote]
        spans, expected = part.sent.popleft()
        if base_offset < 0 or count != expected:
            raise ApiException(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"{remote.topic}-{remote.partition} does not say where it wrote a batch",
            )
        if part.place.topic in self._share.keep_offsets:
            # The broker takes a batch at its own offset, or not at all.
            part.downstream = base_offset
        if base_offset != part.downstream:
            self._foreign(part, base_offset)
        downstream = base_offset
        for upstream, number in spans:
            part.runs.add(upstream, downstream, number)
            downstream += number
        part.downstream = downstream

    def _foreign(self, part: _Partition, base_offset: int) -> None:
        where = f"{part.remote.topic}-{part.remote.partition}"
        said = f"others wrote to {where} at the target: offsets {part.downstream} to {base_offset - 1} are not copies"
        if self._share.resume:
            _logger.warning("%s; passed over", said)
        elif part.stopped is None:
            ways = "Stop those writers and set on.foreign.records=resume, or delete the topic at the target"
            part.stopped = f"{said}. {ways}"

    def _goes_on(self, found: FetchedBatches) -> bool:
        """Whether what was read continues what was copied; False, with the partition stopped, after a truncation.

        An unclean election makes a replica the leader that lacks records. Its log may be longer again by now: the end
        of the last copied leader epoch tells.
        """
        part = self._part(found)
        for _, header in found.batches:
            known, now = part.epoch, header.partition_leader_epoch
            if NO_EPOCH.number < known.number < now:
                end = end_of_epoch(self._source, part.place, known.number)
                if 0 <= end < known.end:
                    part.stopped = lost_offsets(part.place, end, known.end)
                    return False
            if header.next_offset > part.read_to:
                part.epoch = Epoch(now, header.next_offset)
        return True

    def _gone(self, gone: OffsetGone) -> None:
        """The source does not hold an offset: it deleted records before they were copied, or its log went back."""
        part = self._parts[gone.place]
        where = f"{gone.place.topic}-{gone.place.partition}"
        first = list_offsets(self._source, {gone.place: EARLIEST}, isolation=READ_UNCOMMITTED)[gone.place]
        last = list_offsets(self._source, {gone.place: LATEST}, isolation=READ_UNCOMMITTED)[gone.place]
        if gone.offset < first:
            _logger.warning(
                "%s: the source deleted offsets %d to %d before they were copied",
                where,
                gone.offset,
                first - 1,
            )
            part.read_to = part.done = first
            return
        part.stopped = went_back(gone.place, last, gone.offset)

    def _report(self, part: _Partition) -> Copied:
        return Copied(
            part.place,
            Position(part.done, part.downstream, self._writer.sequence(part.remote), part.epoch),
            tuple(part.runs),
            part.records,
            part.size,
            part.rebuilt,
            part.source_end,
            part.stopped,
        )
