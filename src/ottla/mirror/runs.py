"""The map of runs: which offset of the source is which offset of the target, exactly.

A run is a stretch in which the difference of the two stays the same. A gap (a marker, an aborted transaction, a record
that compaction removed) at one side begins a new run. Between two of them translation is addition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """`span` offsets from `upstream` at the source are those from `downstream` at the target."""

    upstream: int
    downstream: int
    span: int

    @property
    def upstream_end(self) -> int:
        """The first offset of the source after the run."""
        return self.upstream + self.span

    @property
    def downstream_end(self) -> int:
        """The first offset of the target after the run."""
        return self.downstream + self.span


class RunMap:
    """The runs of one partition, in order. Not for several threads at once."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._upstreams: list[int] = []
        self._downstreams: list[int] = []
        self._spans: list[int] = []
        self._changed_from = 0
        for run in sorted(runs):
            self.add(*run)
        self._changed_from = len(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._upstreams, self._downstreams, self._spans)

    @property
    def last(self) -> Run | None:
        """The run that may still grow."""
        return self._at(len(self) - 1) if len(self) else None

    def _at(self, index: int) -> Run:
        return Run(self._upstreams[index], self._downstreams[index], self._spans[index])

    def add(self, upstream: int, downstream: int, count: int) -> None:
        """Records from `upstream` on were written from `downstream` on. What is known already is left out."""
        last = self.last
        if last is None:
            self._append(upstream, downstream, count)
            return
        if upstream < last.upstream_end:
            known = last.upstream_end - upstream
            if downstream - upstream != last.downstream - last.upstream or count <= known:
                return
            upstream, downstream, count = upstream + known, downstream + known, count - known
        if downstream - upstream == last.downstream - last.upstream:
            # Also across gaps of the same length at both sides: what lies in them has the same next record.
            self._spans[-1] = upstream + count - last.upstream
            self._changed_from = min(self._changed_from, len(self) - 1)
        else:
            self._append(upstream, downstream, count)

    def _append(self, upstream: int, downstream: int, count: int) -> None:
        self._upstreams.append(upstream)
        self._downstreams.append(downstream)
        self._spans.append(count)

    def take_changed(self) -> list[Run]:
        """The runs that began or grew since the last call."""
        changed = [self._at(index) for index in range(self._changed_from, len(self))]
        self._changed_from = len(self)
        return changed

    def translate(self, upstream: int) -> int | None:
        """Where the target holds the first record at or after an offset of the source; its end if it has none yet.

        None without any run.
        """
        return _translate(self._upstreams, self._downstreams, self._spans, upstream)

    def translate_back(self, downstream: int) -> int | None:
        """The same from target to source."""
        return _translate(self._downstreams, self._upstreams, self._spans, downstream)

    def drop_below(self, log_start: int) -> list[Run]:
        """Forgets the runs before the one that a log start lies in or after; returns them."""
        keep = 0
        while keep < len(self) - 1 and self._upstreams[keep + 1] <= log_start:
            keep += 1
        dropped = [self._at(index) for index in range(keep)]
        del self._upstreams[:keep], self._downstreams[:keep], self._spans[:keep]
        self._changed_from = max(0, self._changed_from - keep)
        return dropped


def reversed_runs(runs: Iterable[Run]) -> list[Run]:
    """The same pairs of offsets, seen from the other side."""
    return sorted(Run(run.downstream, run.upstream, run.span) for run in runs)


def _translate(froms: list[int], tos: list[int], spans: list[int], offset: int) -> int | None:
    if not froms:
        return None
    index = bisect_right(froms, offset) - 1
    if index < 0:
        return tos[0]
    within = offset - froms[index]
    if within < spans[index]:
        return tos[index] + within
    return tos[index + 1] if index + 1 < len(froms) else tos[index] + spans[index]
