"""Acquisition: which of the records that were read a member gets, and as what delivery.

Released records come before new ones. A record that keeps failing is handed out in ever smaller company, and alone
on its last delivery, so that it takes no healthy neighbours along (KIP-932).
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
    """One member's wish for records of one partition, to be filled from the batches that were read."""

    flight: InFlight
    settings: ShareSettings
    member: str
    mode: AcquireMode
    batch_size: int
    """New records are handed out in portions of about so many, cut between batches of the log."""
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
    """Acquire from what was read at `fetch_offset`. `aborted`: ranges of aborted transactions, which nobody gets."""
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
    wish = Acquisition(flight, settings, member, mode, max(1, batch_size), now, wanted, [])
    first = max(fetch_offset, batches[0].base_offset, flight.start_offset)
    _acquire_again(wish, first, last)
    if wish.wanted > 0 and not wish.throttled and last >= flight.next_new_offset:
        _acquire_new(wish, batches, last)
    acquired = wish.acquired
    for lost_first, lost_last in aborted:
        acquired = _without(flight, acquired, lost_first, lost_last)
    flight.advance()
    return acquired


def _archive_missing(flight: InFlight, fetch_offset: int, found: int) -> None:
    """The log has nothing between where we read and what we found: compacted away, or never there."""
    if flight.runs and fetch_offset < found:
        for run in flight.cut(fetch_offset, min(found - 1, flight.end_offset)):
            if run.state is RecordState.AVAILABLE:
                flight.archive(run)


# -- records that were delivered before


def _acquire_again(wish: Acquisition, first: int, last: int) -> None:
    groups = groupby(list(wish.flight.over(first, last)), key=_origin)
    for origin, runs in groups:
        if wish.wanted <= 0:
            return
        candidates = [run for run in runs if run.available]
        if not candidates:
            continue
        limit = throttle_limit(wish.settings.delivery_count_limit)
        throttle = any(run.delivery_count >= limit for run in candidates)
        if throttle and wish.acquired:
            wish.throttled = True
            return
        before = len(wish.acquired)
        for run, count in _portions(wish, candidates, origin, first, last):
            part = wish.flight.cut(run.first, run.first + count - 1)[0]
            wish.take(part)
            _add(wish.acquired, before, part)
        if throttle and len(wish.acquired) > before:
            wish.throttled = True
            return


def _portions(
    wish: Acquisition, candidates: list[Run], origin: Origin, first: int, last: int
) -> Iterator[tuple[Run, int]]:
    """How many records of each run to take, from its beginning."""
    most = wish.settings.delivery_count_limit
    limit = throttle_limit(most)
    taken = 0
    allowed: int | None = None
    for run in candidates:
        if run.first < first:
            run = wish.flight.cut(first, run.last)[0]
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
        if wish.mode is AcquireMode.RECORD_LIMIT:
            count = min(count, wish.wanted)
        if count <= 0:
            return
        yield run, count
        taken += count
        if last_chance or (allowed is not None and taken >= allowed):
            return


def throttle_limit(delivery_count_limit: int) -> int:
    """From so many deliveries on, records are handed out in smaller portions."""
    return max(_LEAST_THROTTLE_LIMIT, (delivery_count_limit + 1) // 2)


def _add(acquired: list[Acquired], group_start: int, run: Run) -> None:
    if len(acquired) > group_start:
        before = acquired[-1]
        if before.last + 1 == run.first and before.delivery_count == run.delivery_count:
            acquired[-1] = before._replace(last=run.last)
            return
    acquired.append(Acquired(run.first, run.last, run.delivery_count))


# -- records that nobody has seen yet


def _acquire_new(wish: Acquisition, batches: Sequence[BatchHeader], last: int) -> None:
    flight = wish.flight
    first = flight.next_new_offset
    found = next(max(batch.base_offset, first) for batch in batches if batch.last_offset >= first)
    if found > first:
        if flight.runs:
            flight.append(Run(first, found - 1, RecordState.ARCHIVED, 0))
        else:
            flight.start_offset = flight.end_offset = found
        first = found
    if wish.wanted < last - first + 1:
        last = first + wish.wanted - 1
        if wish.mode is AcquireMode.BATCH_OPTIMIZED:
            last = _end_of_batch(batches, last)
    for begin, end in _split(batches, first, last, wish):
        run = Run(begin, end, RecordState.AVAILABLE, 0)
        flight.append(run)
        wish.take(run)
        wish.acquired.append(Acquired(begin, end, run.delivery_count))


def _end_of_batch(batches: Sequence[BatchHeader], offset: int) -> int:
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def _split(
    batches: Sequence[BatchHeader], first: int, last: int, wish: Acquisition
) -> Iterator[tuple[int, int]]:
    if wish.mode is AcquireMode.BATCH_OPTIMIZED and last - first + 1 > wish.batch_size:
        for batch in batches:
            base = batch.base_offset
            if base > last:
                break
            if base - first >= wish.batch_size:
                yield first, base - 1
                first = base
    yield first, last


# -- records of aborted transactions


def _without(flight: InFlight, acquired: list[Acquired], first: int, last: int) -> list[Acquired]:
    """Archive the part of what was just acquired that lies in a range, and leave it out."""
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
