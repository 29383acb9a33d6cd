"""Counting in windows for whole columns at once: the same results as record by record, without a loop over records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ottla.streams.graph.operators import Source, WindowAggregate
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.gathering import only_last_counts
from ottla.streams.interpreter.keys import decode_key
from ottla.streams.serdes import Serde, bytes_serde, natural_serde, str_serde

if TYPE_CHECKING:
    from ottla.streams.interpreter.windowed import WindowAggregateProcessor

_TEXT = (None, natural_serde, str_serde)


def counted_behind(topology: Topology, node: Node) -> Node | None:
    """The windowed count right behind a source, if nobody could tell in which order its records were counted."""
    source = node.operator
    if not isinstance(source, Source) or len(node.children) != 1:
        return None
    child = node.children[0]
    operator = child.operator
    if not isinstance(operator, WindowAggregate) or not operator.is_count:
        return None
    plain = source.internal or (
        source.timestamp_of is None
        and source.key_serde in (*_TEXT, bytes_serde)
        and source.value_serde in (*_TEXT, bytes_serde)
    )
    alone = len(child.parents) == 1 and len(topology.users(operator.store)) == 1
    told_later = not operator.send_old and not operator.emit_on_close and only_last_counts(child)
    return child if plain and alone and told_later else None


def is_readable(source: Source, keys: list[Any], values: list[Any]) -> bool:
    """Whether all of these bytes are what the source's serdes can read."""
    if source.internal:
        return True
    pa = _arrow()
    for serde, column in ((source.key_serde, keys), (source.value_serde, values)):
        if serde in _TEXT:
            try:
                pa.array(column, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:
                return False
    return True


def _arrow() -> Any:
    import pyarrow as pa

    return pa


def key_reader(source: Source) -> Callable[[bytes], Any]:
    if source.internal:
        return decode_key
    serde: Serde[Any] = source.key_serde or natural_serde
    return serde.decode


def count_columns(
    processor: WindowAggregateProcessor,
    read_key: Callable[[bytes], Any],
    keys: npt.NDArray[Any],
    times: npt.NDArray[np.int64],
) -> int:
    """Counts records, in the order they came, into their windows; gives back the latest time among them."""
    pandas = _pandas()
    windows = processor.operator.windows
    codes, names = pandas.factorize(keys)
    here = (codes >= 0) & (times >= 0)
    codes, times = codes[here].astype(np.int64), times[here].astype(np.int64)
    if not len(codes):
        return -1
    observed = np.maximum(np.maximum.accumulate(times), processor.observed)
    closed = observed - windows.grace_ms
    processor.observed = int(observed[-1])
    last_start = times // windows.advance_ms * windows.advance_ms
    pairs: list[npt.NDArray[np.int64]] = []
    for back in range(-(-windows.size_ms // windows.advance_ms)):
        start = last_start - back * windows.advance_ms
        end = start + windows.size_ms
        open_ones = (start >= 0) & (end > times) & (end > closed)
        pairs.append(np.stack([codes[open_ones], start[open_ones], times[open_ones]], axis=1))
    rows = np.concatenate(pairs)
    if len(rows):
        # By start, so that the store sees time pass as it did: a window that was open is never gone before its turn.
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
        changes = np.flatnonzero(np.any(rows[1:, :2] != rows[:-1, :2], axis=1)) + 1
        firsts = np.r_[0, changes]
        counts = np.diff(np.r_[firsts, len(rows)])
        latest = np.maximum.reduceat(rows[:, 2], firsts)
        for (code, start), count, time in zip(
            rows[firsts, :2].tolist(), counts.tolist(), latest.tolist(), strict=True
        ):
            processor.count_many(read_key(bytes(names[code])), start, count, time)
    return int(times.max())


def _pandas() -> Any:
    from importlib import import_module

    return import_module("pandas")
