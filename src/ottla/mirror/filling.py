"""Equal offsets for a partition that begins later than 0: empty records up to the source's beginning, then deleted.

The target's next offset is then the source's first one. The filler is compressed, and nobody reads it: DeleteRecords
moves the beginning of the copy behind it before the first record is copied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.partitions import delete_records
from ottla.mirror.copying import Piece, sealed
from ottla.mirror.ownership import Identity
from ottla.pipeline.writer import BatchWriter, Grant, Place
from ottla.records.batch import HEADER_SIZE, build_batch, read_header
from ottla.records.codecs import Compression
from ottla.records.record import Record

_MOST_IN_A_BATCH: Final = 50_000
"""Some 450 kB before compression: less than the smallest usual limit of a batch."""


def fill(brokers: Cluster, identity: Identity, place: Place, start: int, end: int) -> int:
    """Writes empty records from the target's end `start` up to `end`, and deletes them; returns the next sequence."""
    grant = Grant(brokers.settings, producer_id=identity.producer_id, epoch=identity.epoch)
    writer = BatchWriter(brokers, grant)
    now_ms = time.time_ns() // 1_000_000
    for count in _counts(end - start):
        piece = _filler(count, now_ms)
        header = sealed(piece, identity, writer.sequence(place))
        writer.add_batch(place, [header, memoryview(piece.body)], count)
    writer.flush()
    for response in delete_records(brokers, {(place.topic, place.partition): end}):
        for topic in response.topics:
            for one in topic.partitions:
                raise_for(one.error_code, None, f"deleting the filler of {topic.name}-{one.partition_index}")
    return writer.sequence(place)


def _counts(number: int) -> Iterator[int]:
    while number > 0:
        yield min(number, _MOST_IN_A_BATCH)
        number -= _MOST_IN_A_BATCH


@lru_cache(maxsize=2)
def _filler(count: int, now_ms: int) -> Piece:
    # Compacted topics take no record without a key.
    records = [Record(number, now_ms, b"", None) for number in range(count)]
    data = build_batch(records, compression=Compression.ZSTD)
    return Piece(read_header(data), memoryview(data)[HEADER_SIZE:], ((0, count),), count)
