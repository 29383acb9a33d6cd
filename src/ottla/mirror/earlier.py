"""The map of runs before this mirror's first note: where MirrorMaker 2 had copied, which notes no offsets there.

Both sides are counted backwards from the place where this mirror began, by batch headers alone. What the count says is
believed only if records at its beginning and along the way are equal on both sides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.errors import ApiException
from ottla.mirror.comparing import records_of, same_record, spread
from ottla.mirror.runs import Run
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
from ottla.records.batch import iter_records

_logger = logging.getLogger(__name__)

FURTHEST: Final = 10_000_000
"""How many offsets back are looked at: about a minute of reading."""
_MOST_STRETCHES: Final = 1_000_000
_STALL_S: Final = 30.0
_COMPARED_FIRST: Final = 100
_COMPARED_LATER: Final = 10

Stretch = tuple[int, int]
"""The offset of a record, and how many records follow each other from there without a gap."""


class TooManyGaps(Exception):
    """A partition has more gaps than are worth remembering."""


class EarlierRuns:
    """What was learned of partitions of a flow. Not for several threads at once."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target
        self._known: dict[Place, _Known] = {}

    def before(self, place: Place, remote: Place, first: Run, offset: int) -> Sequence[Run]:
        """The runs up to the first known run, from an offset of the source on if the two sides agree so far back."""
        known = self._known.get(place)
        if known is None or known.first != first[:2]:
            known = self._known[place] = _Known((first.upstream, first.downstream))
        anchor = known.runs[0] if known.runs else first
        if known.unknown < offset < anchor.upstream:
            try:
                found = self._learn(place, remote, anchor, offset, known.runs)
            except ApiException as error:
                _logger.info("%s-%d: its earlier offsets could not be read: %s", *place, error)
                return known.runs
            except TooManyGaps:
                found = []
            if found:
                known.runs[:0] = found
            else:
                known.unknown = offset
        return known.runs

    def _learn(
        self, place: Place, remote: Place, anchor: Run, offset: int, known: Sequence[Run]
    ) -> list[Run]:
        # MirrorMaker 2 copies aborted records, too, unless its consumer reads committed ones only.
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            ours = _stretches(self._source, place, offset, anchor.upstream, isolation)
            if not ours:
                return [Run(offset, anchor.downstream, 0)]
            theirs = self._last(remote, anchor.downstream, sum(count for _, count in ours))
            runs = paired(ours, theirs)
            whole = bool(runs) and runs[0].upstream == ours[0][0]
            if whole and self._equal(place, remote, runs, known, isolation):
                # A position in a gap is that of the next record.
                gap = [Run(offset, runs[0].downstream, 0)] if offset < runs[0].upstream else []
                return gap + runs
        return []

    def _last(self, remote: Place, end: int, count: int) -> list[Stretch]:
        """The last so many records of the copy before an offset; fewer if it does not hold as many."""
        lowest = list_offsets(self._target, {remote: EARLIEST}, isolation=READ_UNCOMMITTED)[remote]
        found: list[Stretch] = []
        begin, missing = end, count
        while missing > 0 and begin > lowest:
            start = max(lowest, begin - missing)
            found = _stretches(self._target, remote, start, begin, READ_COMMITTED) + found
            begin, missing = start, count - sum(number for _, number in found)
        return found

    def _equal(
        self, place: Place, remote: Place, runs: Sequence[Run], known: Sequence[Run], isolation: int
    ) -> bool:
        """Whether the first records of both sides are equal, and some of those that follow."""
        samples = list(_first([*runs, *known], _COMPARED_FIRST))
        samples += [
            Run(runs[number].upstream_end - 1, runs[number].downstream_end - 1, 1)
            for number in spread(0, len(runs), _COMPARED_LATER)
        ]
        return all(self._same(place, remote, one, isolation) for one in samples)

    def _same(self, place: Place, remote: Place, run: Run, isolation: int) -> bool:
        few = run.span == 1
        ours = records_of(self._source, place, run.upstream, run.upstream_end, few=few, isolation=isolation)
        theirs = records_of(self._target, remote, run.downstream, run.downstream_end, few=few)
        pairs = list(zip(islice(ours, run.span), islice(theirs, run.span), strict=False))
        return len(pairs) == run.span and all(same_record(mine, twin) for mine, twin in pairs)


@dataclass(slots=True)
class _Known:
    """What is known of a partition before the run that begins at a pair of offsets."""

    first: tuple[int, int]
    runs: list[Run] = field(default_factory=list)
    unknown: int = -1
    """The highest offset from which on the two sides do not agree."""


def _first(runs: Sequence[Run], count: int) -> Iterator[Run]:
    """The first so many records of some runs."""
    for run in runs:
        if count <= 0:
            return
        if run.span:
            yield run._replace(span=min(run.span, count))
        count -= run.span


def _stretches(cluster: Cluster, place: Place, start: int, end: int, isolation: int) -> list[Stretch]:
    """Where a partition holds records in a range of offsets. Only batches with holes are opened."""
    found: list[Stretch] = []
    if start >= end:
        return found
    wanted = OffsetRange(*place, start, end)
    for part in fetch_ranges(cluster, [wanted], isolation=isolation, limits=FetchLimits(stall_s=_STALL_S)):
        for at, header in part.batches:
            if header.count == header.last_offset_delta + 1:
                begin = max(start, header.base_offset)
                _extend(found, begin, min(end, header.next_offset) - begin)
                continue
            for record in iter_records(part.data, at, header):
                if start <= record.offset < end:
                    _extend(found, record.offset, 1)
    return found


def _extend(found: list[Stretch], offset: int, count: int) -> None:
    if found and sum(found[-1]) == offset:
        found[-1] = found[-1][0], found[-1][1] + count
        return
    if len(found) == _MOST_STRETCHES:
        raise TooManyGaps
    found.append((offset, count))


def paired(ours: Sequence[Stretch], theirs: Sequence[Stretch]) -> list[Run]:
    """The last records of both sides as runs, paired from the end; empty if one side has none."""
    runs: list[Run] = []
    mine, twin = list(ours), list(theirs)
    while mine and twin:
        (upstream, many), (downstream, few) = mine.pop(), twin.pop()
        count = min(many, few)
        runs.append(Run(upstream + many - count, downstream + few - count, count))
        if many > count:
            mine.append((upstream, many - count))
        if few > count:
            twin.append((downstream, few - count))
    return runs[::-1]
