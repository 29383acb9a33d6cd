"""Acquisition: which of the records that were read a member gets, and as which delivery.

Released records come before new ones. A record that keeps failing is given out with ever fewer neighbours, and alone
on its last delivery, so that it fails no healthy records with it (KIP-932).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from ottla.records.batch import BatchHeader
from ottla.replica.share.in_flight import InFlight, Origin, Run
from ottla.replica.share.states import Acquired, AcquireMode, RecordState, ShareSettings

_LEAST_THROTTLE_LIMIT = 2
_origin = attrgetter("origin")


@dataclass(slots=True)
class Acquisition:
    """One member's request for records of one partition, filled from the batches that were read."""

    flight: InFlight
    settings: ShareSettings
    member: str
    mode: AcquireMode
    batch_size: int
    """New records are given out in portions of about this size, split between batches of the log."""
    now: float
    wanted: int
    """Records still to be acquired."""
    acquired: list[Acquired]
    throttled: bool = False

    @property
    def deadline(self) -> float:
        return self.now + self.settings.record_lock_ms / 1000

    def take(self, run: Run) -> None:
        """Give a run to the member."""
        run.delivery_count += 1
        run.deadline = self.deadline
        self.flight.set_state(run, RecordState.ACQUIRED, self.member)
        self.wanted -= run.count


def acquire(
    flight: InFlight,
    settings: ShareSettings,
    member: str,
    batches: Sequence[BatchHeader],
    fetch_offset: int,
    *,
    now: float,
    max_records: int,
    batch_size: int,
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    aborted: Iterable[tuple[int, int]] = (),
) -> list[Acquired]:
    """Acquire from what was read at `fetch_offset`. `aborted`: ranges of aborted transactions, which are left out."""
    if not batches or max_records <= 0 or batches[-1].last_offset < flight.start_offset:
        return []
    last = batches[-1].last_offset
    wanted = min(max_records, settings.max_in_flight - flight.count)
    if wanted <= 0:
        if not flight.runs or fetch_offset > flight.end_offset:
            return []
        wanted = min(max_records, flight.end_offset - fetch_offset + 1)
        last = min(last, flight.end_offset)
    _archive_missing(flight, fetch_offset, batches[0].base_offset)
    request = Acquisition(flight, settings, member, mode, max(1, batch_size), now, wanted, [])
    first = max(fetch_offset, batches[0].base_offset, flight.start_offset)
    _acquire_again(request, first, last)
    if request.wanted > 0 and not request.throttled and last >= flight.next_new_offset:
        _acquire_new(request, batches, last)
    acquired = request.acquired
    for lost_first, lost_last in aborted:
        acquired = _without(flight, acquired, lost_first, lost_last)
    flight.advance()
    return acquired


def _archive_missing(flight: InFlight, fetch_offset: int, found: int) -> None:
    """Archive the offsets between the fetch offset and the first batch: they were compacted, or never existed."""
    if flight.runs and fetch_offset < found:
        for run in flight.cut(fetch_offset, min(found - 1, flight.end_offset)):
            if run.state is RecordState.AVAILABLE:
                flight.archive(run)


# -- records that were delivered before


def _acquire_again(request: Acquisition, first: int, last: int) -> None:
    groups = groupby(list(request.flight.over(first, last)), key=_origin)
    for origin, runs in groups:
        if request.wanted <= 0:
            return
        candidates = [run for run in runs if run.available]
        if not candidates:
            continue
        limit = throttle_limit(request.settings.delivery_count_limit)
        throttle = any(run.delivery_count >= limit for run in candidates)
        if throttle and request.acquired:
            request.throttled = True
            return
        before = len(request.acquired)
        for run, count in _portions(request, candidates, origin, first, last):
            part = request.flight.cut(run.first, run.first + count - 1)[0]
            request.take(part)
            _add(request.acquired, before, part)
        if throttle and len(request.acquired) > before:
            request.throttled = True
            return


def _portions(
    request: Acquisition, candidates: list[Run], origin: Origin, first: int, last: int
) -> Iterator[tuple[Run, int]]:
    """How many records of each run to take, from its start."""
    most = request.settings.delivery_count_limit
    limit = throttle_limit(most)
    taken = 0
    allowed: int | None = None
    for run in candidates:
        if run.first < first:
            run = request.flight.cut(first, run.last)[0]
        count = min(run.last, last) - run.first + 1
        last_chance = most > _LEAST_THROTTLE_LIMIT and run.delivery_count == most - 1
        if last_chance:
            if taken:
                return
            count = 1
        elif allowed is None and run.delivery_count >= limit:
            allowed = max(1, origin.size >> (run.delivery_count - limit + 1))
        if allowed is not None:
            count = min(count, max(1, allowed - taken))
        if request.mode is AcquireMode.RECORD_LIMIT:
            count = min(count, request.wanted)
        if count <= 0:
            return
        yield run, count
        taken += count
        if last_chance or (allowed is not None and taken >= allowed):
            return


def throttle_limit(delivery_count_limit: int) -> int:
    """From this number of deliveries on, records are given out in smaller portions."""
    return max(_LEAST_THROTTLE_LIMIT, (delivery_count_limit + 1) // 2)


def _add(acquired: list[Acquired], group_start: int, run: Run) -> None:
    if len(acquired) > group_start:
        before = acquired[-1]
        if before.last + 1 == run.first and before.delivery_count == run.delivery_count:
            acquired[-1] = before._replace(last=run.last)
            return
    acquired.append(Acquired(run.first, run.last, run.delivery_count))


# -- records that were never delivered


def _acquire_new(request: Acquisition, batches: Sequence[BatchHeader], last: int) -> None:
    flight = request.flight
    first = flight.next_new_offset
    found = next(max(batch.base_offset, first) for batch in batches if batch.last_offset >= first)
    if found > first:
        if flight.runs:
            flight.append(Run(first, found - 1, RecordState.ARCHIVED, 0))
        else:
            flight.start_offset = flight.end_offset = found
        first = found
    if request.wanted < last - first + 1:
        last = first + request.wanted - 1
        if request.mode is AcquireMode.BATCH_OPTIMIZED:
            last = _end_of_batch(batches, last)
    for begin, end in _split(batches, first, last, request):
        run = Run(begin, end, RecordState.AVAILABLE, 0)
        flight.append(run)
        request.take(run)
        request.acquired.append(Acquired(begin, end, run.delivery_count))


def _end_of_batch(batches: Sequence[BatchHeader], offset: int) -> int:
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def _split(
    batches: Sequence[BatchHeader], first: int, last: int, request: Acquisition
) -> Iterator[tuple[int, int]]:
    if request.mode is AcquireMode.BATCH_OPTIMIZED and last - first + 1 > request.batch_size:
        for batch in batches:
            base = batch.base_offset
            if base > last:
                break
            if base - first >= request.batch_size:
                yield first, base - 1
                first = base
    yield first, last


# -- records of aborted transactions


def _without(flight: InFlight, acquired: list[Acquired], first: int, last: int) -> list[Acquired]:
    """Archive and leave out the part of the acquired records that lies in a range."""
    kept: list[Acquired] = []
    for part in acquired:
        if part.last < first or part.first > last:
            kept.append(part)
            continue
        for run in flight.cut(max(first, part.first), min(last, part.last)):
            flight.archive(run)
        if part.first < first:
            kept.append(part._replace(last=first - 1))
        if part.last > last:
            kept.append(part._replace(first=last + 1))
    return kept
