"""The segments of a log in order. Changes replace the lists, so readers in threads see a consistent state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from ottla.log.segment import Segment


class LogSegments:
    """Segments in ascending order of base offset; the last one is active."""

    __slots__ = ("_view",)

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._set(segments)

    def _set(self, segments: Iterable[Segment]) -> None:
        ordered = sorted(segments, key=lambda segment: segment.base_offset)
        self._view = ([segment.base_offset for segment in ordered], ordered)

    def __len__(self) -> int:
        return len(self._view[1])

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._view[1])

    def __getitem__(self, n: int) -> Segment:
        return self._view[1][n]

    def __contains__(self, segment: object) -> bool:
        return segment in self._view[1]

    @property
    def all(self) -> Sequence[Segment]:
        """The current segments. Callers must not change the list."""
        return self._view[1]

    @property
    def active(self) -> Segment:
        return self._view[1][-1]

    @property
    def size(self) -> int:
        segments = self._view[1]
        # Scrapes read the size of every log, and most logs have one segment.
        return segments[0].size if len(segments) == 1 else sum([segment.size for segment in segments])

    def since(self, offset: int) -> Sequence[Segment]:
        """Return the segment that holds an offset and all later ones; all segments for an earlier offset."""
        bases, segments = self._view
        return segments[max(bisect_right(bases, offset) - 1, 0) :]

    def add(self, segment: Segment) -> None:
        self._set([*self._view[1], segment])

    def remove(self, gone: Sequence[Segment]) -> None:
        self._set([segment for segment in self._view[1] if segment not in gone])

    def replace(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        self._set([*(segment for segment in self._view[1] if segment not in old), *new])
