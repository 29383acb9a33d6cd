"""Decodes record batches to Arrow columns, with the names and types of Spark's Kafka source.

Batches are unpacked, checked and cut into fields together, some megabytes at a time: no Python per record except for
the step from one record to the next. `fetching.py` says which batches count; `record_fields.py` finds the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.errors import ApiException
from ottla.limits import MAX_UNPACKED_BATCH_BYTES
from ottla.pipeline.record_fields import Fields, HeaderFields, Ints, read_fields, read_headers, record_starts
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    CorruptBatchError,
    check_crc,
)
from ottla.records.codecs import decompress
from ottla.records.record import InvalidRecordError

if TYPE_CHECKING:
    from ottla.pipeline.fetching import FetchedBatches

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
"""The columns of Spark's Kafka source, `headers` as with its option `includeHeaders`."""

ALL_COLUMNS: Final = tuple(SCHEMA.names)

TIME: Final = "time"
"""A column for readers in Python: the timestamp in milliseconds, as it is on the wire."""
_TYPES: Final = SCHEMA.append(pa.field(TIME, pa.int64()))

_CHUNK_BYTES: Final = 8 << 20
"""Unpacked batches are decoded together up to about this size; a larger batch comes alone."""
_LARGEST_MS: Final = (2**63 - 1) // 1000


def decode(fetched: FetchedBatches, columns: Sequence[str] = ALL_COLUMNS) -> Iterator[pa.RecordBatch]:
    """The records of some fetched batches, without those outside the offsets that were asked for.

    Only the given columns are made, in their order. A record without headers has null in `headers`, and times
    outside Arrow's range become its first or last. ApiException if the bytes are not what a broker stores.
    """
    for batches in _chunks(fetched):
        found = _decode_chunk(fetched, batches, columns)
        if found.num_rows:
            yield found


def _chunks(fetched: FetchedBatches) -> Iterator[list[tuple[BatchHeader, bytes | memoryview]]]:
    """The batches with their plain records, as many together as fit into the bound."""
    chunk: list[tuple[BatchHeader, bytes | memoryview]] = []
    size = 0
    view = memoryview(fetched.data)
    for at, header in fetched.batches:
        if header.count == 0 and header.size_in_bytes == HEADER_SIZE:
            continue
        body = _plain_records(fetched, view, at, header)
        if chunk and size + len(body) > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((header, body))
        size += len(body)
    if chunk:
        yield chunk


def _plain_records(
    fetched: FetchedBatches, view: memoryview, at: int, header: BatchHeader
) -> bytes | memoryview:
    where = f"{fetched.topic}-{fetched.partition}, batch at offset {header.base_offset}"
    if not check_crc(view, at, header):
        raise CorruptBatchError(f"{where}: the checksum is wrong; read it from another replica")
    body = view[at + HEADER_SIZE : at + header.size_in_bytes]
    codec = header.attributes & CODEC_MASK
    if not codec:
        return body
    try:
        return decompress(codec, body, MAX_UNPACKED_BATCH_BYTES)
    except ApiException as error:
        raise ApiException(error.code, f"{where}: {error}") from None


def _decode_chunk(
    fetched: FetchedBatches,
    batches: Sequence[tuple[BatchHeader, bytes | memoryview]],
    columns: Sequence[str],
) -> pa.RecordBatch:
    data = batches[0][1] if len(batches) == 1 else b"".join([body for _, body in batches])
    data = data if isinstance(data, bytes) else bytes(data)
    headers = [header for header, _ in batches]
    try:
        starts = record_starts(data)
        counts = _check_counts(starts, batches)
        raw = np.frombuffer(data, np.uint8)
        fields = read_fields(raw, starts, np.append(starts[1:], len(data)))
        rows = _Rows(fetched, data, headers, counts, fields)
        return pa.RecordBatch.from_arrays(
            [rows.column(name) for name in columns],
            schema=pa.schema([_TYPES.field(name) for name in columns]),
        )
    except InvalidRecordError as error:
        first, last = headers[0].base_offset, headers[-1].last_offset
        where = f"{fetched.topic}-{fetched.partition}, offsets {first} to {last}"
        raise InvalidRecordError(f"{where}: {error}") from None


def _check_counts(starts: Ints, batches: Sequence[tuple[BatchHeader, bytes | memoryview]]) -> Ints:
    """The number of records of each batch, if each batch begins with its first and holds as many as it claims."""
    counts = np.array([header.count for header, _ in batches], np.int64)
    ends = np.cumsum([len(body) for _, body in batches])
    first = np.concatenate([[0], np.cumsum(counts)])
    if int(counts.min()) < 0 or int(first[-1]) != len(starts):
        raise InvalidRecordError(f"the batches claim {int(first[-1])} records and hold {len(starts)}")
    bounds = np.append(starts, int(ends[-1]))
    if not np.array_equal(bounds[first[1:]], ends):
        raise InvalidRecordError("a batch holds another number of records than it claims")
    return counts


class _Rows:
    """The records of a chunk, from which columns are made on demand."""

    def __init__(
        self,
        fetched: FetchedBatches,
        data: bytes,
        headers: Sequence[BatchHeader],
        counts: Ints,
        fields: Fields,
    ) -> None:
        self._fetched = fetched
        self._data = data
        self._headers = headers
        self._counts = counts
        self._fields = fields
        self._offsets = self._per_batch([header.base_offset for header in headers]) + fields.offset_deltas
        wanted = (self._offsets >= fetched.start) & (self._offsets < fetched.end)
        self._wanted: Ints | None = None if bool(wanted.all()) else np.flatnonzero(wanted)
        self._count = len(self._offsets) if self._wanted is None else len(self._wanted)

    def column(self, name: str) -> pa.Array:
        match name:
            case "key":
                return self._bytes(self._fields.key_at, self._fields.key_size)
            case "value":
                return self._bytes(self._fields.value_at, self._fields.value_size)
            case "topic":
                return _repeated(self._fetched.topic, self._count)
            case "partition":
                return pa.array(np.full(self._count, self._fetched.partition, np.int32))
            case "offset":
                return pa.array(self._only(self._offsets))
            case "timestamp":
                micros = np.clip(self._times(), -_LARGEST_MS, _LARGEST_MS) * 1000
                return pa.array(micros).view(SCHEMA.field("timestamp").type)
            case "time":
                return pa.array(self._times())
            case "timestampType":
                return pa.array(self._only(self._per_batch(self._append_time()).astype(np.int32)))
            case "headers":
                return self._header_lists()
        raise KeyError(name)

    def _only(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return values if self._wanted is None else values[self._wanted]

    def _per_batch(self, values: Iterable[int]) -> Ints:
        return np.repeat(np.array(list(values), np.int64), self._counts)

    def _append_time(self) -> list[int]:
        return [1 if header.attributes & LOG_APPEND_TIME_FLAG else 0 for header in self._headers]

    def _times(self) -> Ints:
        """The times in milliseconds."""
        base = self._per_batch([header.base_timestamp for header in self._headers])
        times = base + self._fields.timestamp_deltas
        if any(self._append_time()):
            at_append = self._per_batch(self._append_time()) == 1
            times[at_append] = self._per_batch([header.max_timestamp for header in self._headers])[at_append]
        return times if self._wanted is None else times[self._wanted]

    def _bytes(self, at: Ints, size: Ints) -> pa.Array:
        if self._wanted is not None:
            at, size = at[self._wanted], size[self._wanted]
        return _slices(self._data, at, size)

    def _header_lists(self) -> pa.Array:
        if not int(self._fields.header_counts.max(initial=0)):
            return pa.nulls(self._count, HEADERS)
        lists = _lists(
            self._data, read_headers(self._data, np.frombuffer(self._data, np.uint8), self._fields)
        )
        return lists if self._wanted is None else lists.take(pa.array(self._wanted))


def _slices(data: bytes, at: Ints, size: Ints) -> pa.Array:
    """Pieces of `data`, which lie one after the other, as a binary array; a size of -1 gives null.

    The pieces and the gaps between them are one array over `data` without a copy; Arrow then takes every second.
    """
    count = len(at)
    missing = size < 0
    if not count or bool(missing.all()):
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(size, 0)
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    every_second = np.arange(0, 2 * count, 2, dtype=np.int64)
    mask = missing if bool(missing.any()) else None
    return pieces.take(pa.array(every_second, mask=mask))


def _lists(data: bytes, headers: HeaderFields) -> pa.Array:
    keys = _slices(data, headers.key_at, headers.key_size)
    values = _slices(data, headers.value_at, headers.value_size)
    pairs = pa.StructArray.from_arrays(
        [_text(keys), values], fields=[HEADERS.value_type.field(0), HEADERS.value_type.field(1)]
    )
    bounds = np.concatenate([[0], np.cumsum(headers.counts)]).astype(np.int32)
    none = headers.counts == 0
    mask = pa.array(none) if bool(none.any()) else None
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=HEADERS, mask=mask)


def _text(keys: pa.Array) -> pa.Array:
    """Header keys as text; bytes that are no UTF-8 are replaced, as Java does."""
    try:
        return pc.cast(keys, pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _repeated(text: str, count: int) -> pa.Array:
    encoded = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * count)]
    )
