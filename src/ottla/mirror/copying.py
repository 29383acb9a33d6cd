"""Turns batches of a source into batches for a target, without decompressing them where that can be.

A batch gets the producer id, epoch and sequence of its new writer, loses the bits that belong to the source's log, and
gets a new checksum. Codec, timestamps, headers, order and borders of batches stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.mirror.ownership import Identity
from ottla.pipeline.fetching import FetchedBatches
from ottla.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    build_batch,
    check_crc,
    iter_records,
    pack_header,
    read_header,
    with_crc,
)
from ottla.records.record import Record
from ottla.records.validation import MIRROR_EPOCH

Span = tuple[int, int]
"""The offset of a record at the source, and how many records follow each other from there without a gap."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch for the target, still without a writer, and the places of its records at the source."""

    header: BatchHeader
    body: Buffer
    spans: Sequence[Span]
    next_upstream: int
    """Where the source goes on after it."""
    rebuilt: bool = False

    @property
    def count(self) -> int:
        """The number of records."""
        return self.header.count

    @property
    def span(self) -> int:
        """The offsets that it takes where it keeps its own: with holes."""
        return self.header.last_offset_delta + 1

    @property
    def size(self) -> int:
        """The bytes of the batch."""
        return HEADER_SIZE + len(self.body)


def pieces(found: FetchedBatches, max_batch_bytes: int, *, keep_offsets: bool = False) -> Iterator[Piece]:
    """The batches of a read, as the target takes them."""
    for at, header in found.batches:
        yield from pieces_of(found.data, at, header, found.start, max_batch_bytes, keep_offsets=keep_offsets)


def pieces_of(
    data: Buffer,
    at: int,
    header: BatchHeader,
    start: int,
    max_batch_bytes: int,
    *,
    keep_offsets: bool = False,
) -> Iterator[Piece]:
    """One batch as it is, or opened and built again: with holes, with the broker's times, begun before `start`, or
    larger than the target takes. A target that keeps offsets takes holes, too."""
    if not check_crc(data, at, header):
        # Its copy would get a checksum that is right, and nobody could see any more that it is damaged.
        raise CorruptBatchError(f"the batch at offset {header.base_offset} has a wrong checksum")
    whole = header.base_offset >= start and (keep_offsets or header.count == header.last_offset_delta + 1)
    if whole and header.timestamp_type == CREATE_TIME and header.size_in_bytes <= max_batch_bytes:
        body = memoryview(data)[at + HEADER_SIZE : at + header.size_in_bytes]
        yield Piece(header, body, ((header.base_offset, header.count),), header.next_offset)
        return
    records = [one for one in iter_records(data, at, header) if one.offset >= start]
    yield from _built(records, header, max_batch_bytes, header.next_offset, keep_offsets=keep_offsets)


def _built(
    records: Sequence[Record],
    header: BatchHeader,
    max_batch_bytes: int,
    next_upstream: int,
    *,
    keep_offsets: bool,
) -> Iterator[Piece]:
    """Records as a batch with the same codec; halved while it is larger than the target takes."""
    if not records:
        return
    consecutive = [
        Record(one.offset if keep_offsets else number, one.timestamp, one.key, one.value, one.headers)
        for number, one in enumerate(records)
    ]
    data = build_batch(consecutive, compression=header.compression)
    if len(data) > max_batch_bytes and len(records) > 1:
        middle = len(records) // 2
        next_half = records[middle].offset
        yield from _built(records[:middle], header, max_batch_bytes, next_half, keep_offsets=keep_offsets)
        yield from _built(records[middle:], header, max_batch_bytes, next_upstream, keep_offsets=keep_offsets)
        return
    spans = tuple(_spans([one.offset for one in records]))
    yield Piece(read_header(data), memoryview(data)[HEADER_SIZE:], spans, next_upstream, rebuilt=True)


def _spans(offsets: Sequence[int]) -> Iterator[Span]:
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last - first + 1
            first = offset
        last = offset
    yield first, last - first + 1


def sealed(piece: Piece, identity: Identity, sequence: int, *, keep_offsets: bool = False) -> bytes:
    """The header of a piece for its writer; the body follows it."""
    header = piece.header._replace(
        base_offset=piece.header.base_offset if keep_offsets else 0,
        partition_leader_epoch=MIRROR_EPOCH if keep_offsets else NO_LEADER_EPOCH,
        attributes=piece.header.attributes & CODEC_MASK,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
    )
    return pack_header(with_crc(header, piece.body))
