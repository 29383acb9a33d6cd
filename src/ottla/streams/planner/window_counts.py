"""Counts whole columns in windows at once: the results of the interpreter, without a loop over records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.streams.graph.operators import Source
from ottla.streams.interpreter.keys import decode_key
from ottla.streams.planner.count_patterns import TEXT_SERDES
from ottla.streams.planner.rows import AnyArray
from ottla.streams.serdes import natural_serde
from ottla.streams.windows import TimeWindows

if TYPE_CHECKING:
    from ottla.streams.interpreter.windowed import WindowAggregateProcessor

Ints = npt.NDArray[np.int64]


def is_readable(source: Source, keys: list[bytes | None], values: list[bytes | None]) -> bool:
    """Whether the source's serdes can read all of these bytes."""
    if source.internal:
        return True
    for serde, column in ((source.key_serde, keys), (source.value_serde, values)):
        if serde in TEXT_SERDES:
            try:
                pa.array(column, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:
                return False
    return True


def key_reader(source: Source) -> Callable[[bytes], object]:
    """Reads the keys of a source's rows."""
    if source.internal:
        return decode_key
    return (source.key_serde or natural_serde).decode


@dataclass(slots=True)
class WindowCounts:
    """The number of records of each key and window; a code stands for a key. `observed` is the latest time so far."""

    codes: Ints
    starts: Ints
    counts: Ints
    latest: Ints
    observed: int


def count_windows(windows: TimeWindows, codes: Ints, times: Ints, observed: int) -> WindowCounts:
    """Counts records in their order; a record that is too late by the times before it is left out. Codes below 0 stand
    for no key."""
    here = (codes >= 0) & (times >= 0)
    if not here.all():
        codes, times = codes[here], times[here]
    if not len(codes):
        none = np.empty(0, np.int64)
        return WindowCounts(none, none, none, none, observed)
    seen = np.maximum(np.maximum.accumulate(times), observed)
    closed = seen - windows.grace_ms
    last_start = times // windows.advance_ms * windows.advance_ms
    parts: list[tuple[Ints, Ints, Ints]] = []
    for back in range(-(-windows.size_ms // windows.advance_ms)):
        start = last_start - back * windows.advance_ms
        end = start + windows.size_ms
        open_ones = (start >= 0) & (end > times) & (end > closed)
        parts.append((codes[open_ones], start[open_ones], times[open_ones]))
    some, begun, when = (np.concatenate(column) for column in zip(*parts, strict=True))
    return summed(WindowCounts(some, begun, np.ones(len(some), np.int64), when, int(seen[-1])))


def summed(counted: WindowCounts) -> WindowCounts:
    """One row for each key and window, ordered by start: a store then sees time pass, and drops no window too early."""
    order = np.lexsort((counted.codes, counted.starts))
    codes, starts, times = counted.codes[order], counted.starts[order], counted.latest[order]
    changes = (codes[1:] != codes[:-1]) | (starts[1:] != starts[:-1])
    firsts = np.flatnonzero(np.r_[len(codes) > 0, changes]) if len(codes) else np.empty(0, np.int64)
    if not len(firsts):
        return WindowCounts(codes, starts, counted.counts, times, counted.observed)
    counts = np.add.reduceat(counted.counts[order], firsts)
    latest = np.maximum.reduceat(times, firsts)
    return WindowCounts(codes[firsts], starts[firsts], counts, latest, counted.observed)


def count_columns(
    processor: WindowAggregateProcessor, read_key: Callable[[bytes], object], keys: AnyArray, times: Ints
) -> int:
    """Counts records, in their order, into their windows; returns the latest time among them."""
    codes, names = _factorized(keys)
    windows = processor.operator.windows
    counted = count_windows(windows, codes, times.astype(np.int64), processor.observed)
    processor.observed = counted.observed
    _count(processor, read_key, names, counted)
    here = (codes >= 0) & (times >= 0)
    return int(times[here].max(initial=-1))


def add_counts(
    processor: WindowAggregateProcessor,
    read_key: Callable[[bytes], object],
    keys: AnyArray,
    counted: WindowCounts,
) -> None:
    """Adds what was counted where the records were read; windows that were closed before are left out.
    `counted.observed` is the latest time there."""
    windows = processor.operator.windows
    codes, names = _factorized(keys)
    open_ones = counted.starts + windows.size_ms > processor.observed - windows.grace_ms
    starts, counts, latest = counted.starts[open_ones], counted.counts[open_ones], counted.latest[open_ones]
    order = np.argsort(starts, kind="stable")
    rows = WindowCounts(
        codes[open_ones][order], starts[order], counts[order], latest[order], counted.observed
    )
    _count(processor, read_key, names, rows)
    processor.observed = max(processor.observed, counted.observed)


def _count(
    processor: WindowAggregateProcessor,
    read_key: Callable[[bytes], object],
    names: AnyArray,
    counted: WindowCounts,
) -> None:
    known: dict[int, object] = {}
    columns = (counted.codes, counted.starts, counted.counts, counted.latest)
    for code, start, count, latest in zip(*(column.tolist() for column in columns), strict=True):
        if code not in known:
            known[code] = read_key(bytes(names[code]))
        processor.count_many(known[code], start, count, latest)


def _factorized(keys: AnyArray) -> tuple[Ints, AnyArray]:
    """A code for each key, and the keys by code."""
    import pandas as pd

    codes, names = pd.factorize(keys)
    return codes.astype(np.int64), names
