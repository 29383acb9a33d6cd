"""Recovery of a segment after a crash: finds its valid length and rebuilds everything derived from its batches.

A batch is valid if its checksum and its place are right. The checksum does not cover offset and epoch, so they are
compared with the neighbours: a batch with a wrong one is cut off like a torn batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

from ottla.errors import ApiException, ErrorCode
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.leader_epochs import EpochEntry, LeaderEpochCache, epoch_at
from ottla.log.producer_state import ProducerStateManager
from ottla.log.segment import MAX_RELATIVE_OFFSET, BatchPosition, Scan, Segment
from ottla.log.types import NO_EPOCH
from ottla.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatchError,
    check_crc,
    read_header,
)

_Batch = tuple[int, BatchHeader, memoryview]

_TAIL = 256
_MAX_OLD_BYTES = 1 << 28
"""No message of an old format is larger: brokers refuse batches above `message.max.bytes`."""
_MAX_OFFSET = 2**63 - 1


def recover_segment(
    segment: Segment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    place: Place | None = None,
    *,
    following: Segment | None = None,
    active: bool,
) -> int:
    """Truncate a segment after its last valid batch and rebuild its indexes, producers and epochs.

    `place` goes along from segment to segment and judges where batches belong; `following` is the next segment,
    which may confirm the last batch of this one. The number of bytes cut.
    """
    if not segment.size:
        segment.rebuilt(Scan(offset_of_max=segment.base_offset), active=active)
        return 0
    _refuse_old_format(segment)
    scan = Scan(offset_of_max=segment.base_offset)
    interval = segment.settings.index_interval_bytes
    since_entry = 0
    for position, header, batch in _good_batches(segment, place or Place(), following):
        last_offset = header.last_offset
        if header.max_timestamp > scan.max_timestamp:
            scan.max_timestamp, scan.offset_of_max = header.max_timestamp, last_offset
        if since_entry > interval:
            _add_entries(segment, scan, last_offset, position)
            since_entry = 0
        if scan.first_timestamp is None:
            scan.first_timestamp = header.max_timestamp
        size = header.length + 12
        since_entry += size
        scan.size = position + size
        scan.tail.append(BatchPosition(position, size, header.base_offset, last_offset))
        if len(scan.tail) > _TAIL:
            del scan.tail[: _TAIL // 2]
        epochs.note(header.partition_leader_epoch, header.base_offset)
        scan.aborted += producers.replay(header, batch)
    scan.bytes_since_entry = since_entry
    cut = segment.size - scan.size
    segment.rebuilt(scan, active=active)
    return cut


def _add_entries(segment: Segment, scan: Scan, last_offset: int, position: int) -> None:
    scan.offset_entries += OffsetIndex.ENTRY.pack(last_offset - segment.base_offset, position)
    entry = TimeIndex.ENTRY
    before = (
        entry.unpack_from(scan.time_entries, len(scan.time_entries) - entry.size)[0]
        if scan.time_entries
        else -1
    )
    if scan.max_timestamp > before:
        scan.time_entries += entry.pack(scan.max_timestamp, scan.offset_of_max - segment.base_offset)


class Place:
    """Checks that batches are in the right place, over all segments of a log.

    Below `synced` nothing is doubted; below `gaps_below` compaction may have left gaps; `written_epochs` are those
    known from the checkpoint, which is written before the first batch of an epoch; with `epochs_lost` there is none.
    """

    __slots__ = (
        "_base",
        "_doubted_epoch",
        "_epoch",
        "_epochs_lost",
        "_expected",
        "_gaps_below",
        "_synced",
        "_written",
        "doubtful",
    )

    def __init__(
        self,
        floor: int = 0,
        *,
        synced: int = _MAX_OFFSET,
        gaps_below: int = _MAX_OFFSET,
        written_epochs: Sequence[EpochEntry] = (),
        epochs_lost: bool = False,
    ) -> None:
        self._base = 0
        self._epochs_lost = epochs_lost
        self._expected = floor
        self._synced = synced
        self._gaps_below = gaps_below
        self._written = written_epochs
        self._epoch = NO_EPOCH
        self._doubted_epoch: int | None = None
        self.doubtful = False
        """Neither the previous batch nor the epochs explain the last batch's place: the next one must confirm it."""

    def enter(self, base_offset: int) -> None:
        """Begin a segment."""
        self._base = base_offset
        self._expected = max(self._expected, base_offset)

    def fits(self, header: BatchHeader) -> bool:
        """Return whether a batch can follow the previous one. If not, a doubtful previous one is wrong."""
        base_offset, epoch = header.base_offset, header.partition_leader_epoch
        if base_offset < self._expected or header.last_offset - self._base > MAX_RELATIVE_OFFSET:
            return False
        self.doubtful = False
        if base_offset >= self._synced:
            if epoch < NO_EPOCH or 0 <= epoch < self._epoch or self._doubted_epoch not in (None, epoch):
                return False
            confirmed = self._doubted_epoch is not None
            self._doubted_epoch = None
            if not confirmed and self._unexpected_epoch(base_offset, epoch):
                self._doubted_epoch = epoch
            jumps = base_offset > self._expected >= self._gaps_below
            self.doubtful = jumps or self._doubted_epoch is not None
        self._expected = header.next_offset
        self._epoch = max(self._epoch, epoch)
        return True

    def _unexpected_epoch(self, offset: int, epoch: int) -> bool:
        """Return whether the epoch checkpoint contradicts the batch."""
        if epoch == self._epoch:
            return False
        known = epoch_at(self._written, offset)
        return self._epochs_lost if known < 0 else known != epoch

    def confirmed_by(self, following: Segment | None) -> bool:
        """Return whether the following segment begins where the doubtful last batch ends."""
        if following is None or following.base_offset != self._expected:
            return False
        header = following.header_at(0) if following.size >= HEADER_SIZE else None
        return self._doubted_epoch is None or (
            header is not None and header.partition_leader_epoch == self._doubted_epoch
        )


def _good_batches(segment: Segment, place: Place, following: Segment | None) -> Iterator[_Batch]:
    """Iterate over the batches up to the first damage. A doubtful batch waits until its successor confirms it."""
    place.enter(segment.base_offset)
    held: _Batch | None = None
    try:
        for found in segment.batches():
            _, header, batch = found
            if header.count < 0 or header.last_offset_delta < 0 or not check_crc(batch, 0, header):
                break
            if not place.fits(header):
                break
            if held is not None:
                yield held
                held = None
            if place.doubtful:
                held = found
            else:
                yield found
        else:
            if held is not None and place.confirmed_by(following):
                yield held
    except CorruptBatchError:
        return  # no batch follows, so a doubtful one is dropped, too


def begins_with_old_format(header: BatchHeader, size: int, pread: Callable[[int, int], Buffer]) -> bool:
    """Whether a segment of this size begins with a whole message of magic 0 or 1."""
    if header.magic not in (0, 1) or not 14 <= header.length <= min(size - 12, _MAX_OLD_BYTES):
        return False
    # Zeros that a crash left in a batch of magic 2 look like magic 0 too, but not with the old format's checksum.
    message = pread(header.length, 12)
    return int.from_bytes(message[:4], "big") == zlib.crc32(message[4:])


def ends_well(segment: Segment) -> bool:
    """Whether the last batches of a segment that was closed cleanly can stand where they do, and the last one is whole.

    They decide where the log goes on: a flipped bit in an offset would move the end of the log. Gaps are no damage:
    the topic may have been compacted before.
    """
    expected: int | None = None
    last: BatchPosition | None = None
    try:
        for batch in segment.locate(segment.near(_MAX_OFFSET)):
            floor = segment.base_offset if expected is None else expected
            if (
                not floor
                <= batch.base_offset
                <= batch.last_offset
                <= segment.base_offset + MAX_RELATIVE_OFFSET
            ):
                return False
            expected, last = batch.last_offset + 1, batch
    except CorruptBatchError:
        return False
    if last is None or last.position + last.size != segment.size:
        return segment.size == 0
    raw = segment.log.pread(last.size, last.position)
    return len(raw) == last.size and check_crc(raw, 0, read_header(raw, 0))


def _refuse_old_format(segment: Segment) -> None:
    """Refuse whole message sets of magic 0 or 1: they are not damage, and truncation would destroy good data."""
    header = segment.header_at(0) if segment.size >= HEADER_SIZE else None
    if header is not None and begins_with_old_format(header, segment.size, segment.log.pread):
        raise ApiException(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{segment.path} holds messages of format {header.magic}; only format {MAGIC} is supported",
        )
