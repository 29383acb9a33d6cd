"""Encodes Arrow columns as the record sections of Kafka's batches, column by column: no Python per record.

The variable-length integers of all records are computed as one matrix of bytes per field and packed by a mask. Arrow
then joins the pieces of each record, and the data buffer of the joined array is the record section itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_MOST_VARINT_BYTES: Final = 10
_RECORD_OVERHEAD: Final = 40
"""The most bytes of a record beside its key, value and headers."""

_HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True)
class Section:
    """The encoded records of one batch: the bytes after the batch's header."""

    body: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def varints(values: Ints) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Zigzag varints: a matrix with a row of bytes per value, and a mask of the bytes that are used."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max(1, (int(zigzag.max()).bit_length() + 6) // 7) if len(zigzag) else 1
    if width == 1:
        return zigzag.astype(np.uint8).reshape(-1, 1), np.ones((len(zigzag), 1), np.bool_)
    matrix = np.empty((len(zigzag), width), np.uint8)
    counts = np.empty((len(zigzag), width), np.bool_)
    counts[:, 0] = True
    rest = zigzag
    for at in range(width):
        matrix[:, at] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        if at + 1 < width:
            more = rest != 0
            matrix[:, at] |= more.astype(np.uint8) << 7
            counts[:, at + 1] = more
    return matrix, counts


def _packed(fields: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]) -> tuple[pa.Array, Ints]:
    """The fields of each row one after the other, as an Arrow binary array; and their sizes."""
    matrix = fields[0][0] if len(fields) == 1 else np.hstack([one for one, _ in fields])
    counts = fields[0][1] if len(fields) == 1 else np.hstack([one for _, one in fields])
    sizes = _sizes(counts)
    return _binary(sizes, matrix[counts]), sizes


def _binary(sizes: Ints, data: npt.NDArray[np.uint8]) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _sizes(counts: npt.NDArray[np.bool_]) -> Ints:
    sizes: Ints = counts.sum(axis=1, dtype=np.int64)
    return sizes


def as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A string or binary column as Arrow's `binary`, in one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _lengths(column: pa.Array) -> Ints:
    """The length of each value; -1 stands for null, as on the wire."""
    lengths = pc.binary_length(column)
    if column.null_count:
        lengths = pc.fill_null(lengths, -1)
    sizes: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _filled(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"") if column.null_count else column


def encode_headers(headers: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """A column of lists of (key, value) as the bytes that end each record: the count, then the headers."""
    lists = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    if lists.null_count:
        empty = pa.scalar([], lists.type)
        lists = pc.fill_null(lists, empty)
    ends = lists.offsets.to_numpy().astype(np.int64)
    inner = lists.values
    key, value = as_binary(inner.field(0)), as_binary(inner.field(1))
    key_size, value_size = _lengths(key), _lengths(value)
    key_prefix, _ = _packed([varints(key_size)])
    value_prefix, _ = _packed([varints(value_size)])
    flat = pc.binary_join_element_wise(key_prefix, _filled(key), value_prefix, _filled(value), b"")
    flat_ends = np.frombuffer(flat.buffers()[1], np.int32)[flat.offset : flat.offset + len(flat) + 1]
    bounds = flat_ends[ends]
    data = flat.buffers()[2]
    joined = pa.Array.from_buffers(
        pa.binary(), len(lists), [None, pa.py_buffer(bounds.astype(np.int32)), data or pa.py_buffer(b"")]
    )
    prefix, prefix_sizes = _packed([varints(np.diff(ends))])
    whole = pc.binary_join_element_wise(prefix, joined, b"")
    return whole, prefix_sizes + np.diff(bounds)


def encode_sections(
    key: pa.Array | None, value: pa.Array, timestamps: Ints, headers: pa.Array | None, max_bytes: int
) -> Iterator[Section]:
    """Encodes the records of one partition in order, in batches of about `max_bytes` at most.

    `key` and `value` are binary arrays of one chunk; without `key` all keys are null.
    """
    count = len(value)
    if count == 0:
        return
    value_size = _lengths(value)
    key_size = _lengths(key) if key is not None else np.full(count, -1, np.int64)
    tail, tail_size = encode_headers(headers) if headers is not None else (b"\0", np.ones(count, np.int64))
    bodies = np.maximum(value_size, 0) + np.maximum(key_size, 0) + tail_size
    starts = _cuts(bodies + _RECORD_OVERHEAD, max_bytes)
    batch_of = np.zeros(count, np.int64)
    batch_of[starts[1:-1]] = 1
    first = starts[:-1][np.cumsum(batch_of)]
    times, deltas = varints(timestamps - timestamps[first]), varints(np.arange(count) - first)
    key_sizes, value_sizes = varints(key_size), varints(value_size)
    inner = 1 + _sizes(times[1]) + _sizes(deltas[1]) + _sizes(key_sizes[1]) + _sizes(value_sizes[1]) + bodies
    attributes = np.zeros((count, 1), np.uint8), np.ones((count, 1), np.bool_)
    front = [varints(inner), attributes, times, deltas, key_sizes]
    if key is None:
        prefix, _ = _packed([*front, value_sizes])
        joined = pc.binary_join_element_wise(prefix, _filled(value), tail, b"")
    else:
        prefix, _ = _packed(front)
        before_value, _ = _packed([value_sizes])
        joined = pc.binary_join_element_wise(prefix, _filled(key), before_value, _filled(value), tail, b"")
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + count + 1]
    data = memoryview(joined.buffers()[2])
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        times_here = timestamps[start:end]
        yield Section(
            data[int(ends[start]) : int(ends[end])], end - start, int(times_here[0]), int(times_here.max())
        )


def _cuts(sizes: Ints, max_bytes: int) -> Ints:
    """The starts of the batches, and the end of the last. A batch is as full as possible and never empty."""
    ends = np.cumsum(sizes)
    cuts = [0]
    done = 0
    while cuts[-1] < len(sizes):
        at = int(np.searchsorted(ends, done + max_bytes, side="right"))
        at = max(at, cuts[-1] + 1)
        cuts.append(at)
        done = int(ends[at - 1])
    return np.array(cuts, np.int64)
