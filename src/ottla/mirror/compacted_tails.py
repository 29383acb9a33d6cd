"""The tail of a compacted target: cleaners at both sides may have removed records since they were copied.

A record that one side lacks is in order if a newer one with its key is there: that is why the cleaner removed it. Each
other difference is somebody else's record, or a lost one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.records.record import Record

_Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(slots=True)
class CompactedMatch:
    """Which records of the tail are which of the source."""

    pairs: list[tuple[int, int]] = field(default_factory=list)
    """Offsets at the source and at the target, in order."""
    unmatched: int = 0
    """Records of the tail that the source has no more."""
    foreign: int | None = None
    """The first offset of the tail whose record no cleaner explains."""
    missing: int | None = None
    """The first offset of the source that the tail should have and has not."""


def _content(record: Record) -> _Content:
    return record.key, record.value, tuple(record.headers)


def match_compacted(
    tail: Iterable[tuple[Record, bool]], upstream: Iterator[tuple[int, Record]], *, lead_in: bool = False
) -> CompactedMatch:
    """Matches a target's tail with the source's next records, in order.

    A record of the tail comes with whether its time is that of the source. `lead_in` says that the source has deleted
    records that the tail may begin with. The source is read no further than needed.
    """
    held = list(tail)
    places: dict[_Content, deque[int]] = {}
    for index, (record, _) in enumerate(held):
        places.setdefault(_content(record), deque()).append(index)
    found = CompactedMatch()
    matched: set[int] = set()
    last = -1
    passed: list[tuple[int, Record]] = []
    skipped: list[tuple[int, Record]] = []
    newest: set[bytes | None] = set()
    for offset, record in upstream:
        newest.add(record.key)
        at = _next_place(places.get(_content(record)), held, last, record)
        if at is None:
            passed.append((offset, record))
        else:
            skipped += passed
            passed.clear()
            found.pairs.append((offset, held[at][0].offset))
            matched.add(at)
            last = at
        if last == len(held) - 1:
            break
    first = min(matched, default=len(held))
    unexplained = {
        record.key: record.offset
        for index, (record, _) in reversed(list(enumerate(held)))
        if index not in matched and not (lead_in and index < first) and record.key not in newest
    }
    while unexplained:
        later = next(upstream, None)
        if later is None:
            break
        unexplained.pop(later[1].key, None)
    found.unmatched = len(held) - len(matched)
    found.foreign = min(unexplained.values(), default=None)
    kept = {record.key for record, _ in held}
    found.missing = next((offset for offset, record in skipped if record.key not in kept), None)
    return found


def _next_place(
    places: deque[int] | None, held: list[tuple[Record, bool]], last: int, record: Record
) -> int | None:
    while places and places[0] <= last:
        places.popleft()
    for index in places or ():
        other, same_times = held[index]
        if not same_times or other.timestamp == record.timestamp:
            return index
    return None
