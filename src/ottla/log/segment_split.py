"""Splits a segment whose offsets overflow: offsets in an index are 32 bits relative to the segment's base offset.

Old versions of Kafka could write such segments (KAFKA-6264). The batches are copied into segments that each reach at
most 2**31 - 1 offsets, and these replace the old one under the protocol of the cleaner's swaps. Recovery then builds
their indexes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.log.files import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, stem
from ottla.log.fs import Fs
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.records.batch import CorruptBatchError

_logger = logging.getLogger(__name__)

_COPY_BYTES: Final = 1 << 20


class Piece(NamedTuple):
    """A new segment: its base offset and where its batches begin in the old one."""

    base_offset: int
    position: int


def pieces_of(segment: Segment) -> list[Piece]:
    """The segments that replace this one; a single one if its offsets do not overflow."""
    pieces = [Piece(segment.base_offset, 0)]
    try:
        for position, header, _ in segment.batches():
            if header.last_offset - pieces[-1].base_offset > MAX_RELATIVE_OFFSET:
                piece = Piece(header.base_offset, position)
                # The first batch of all overflows: nothing is left for a segment before it.
                pieces[-1:] = [piece] if pieces[-1].position == position else [pieces[-1], piece]
    except CorruptBatchError:
        # Recovery decides what becomes of a damaged segment.
        return [Piece(segment.base_offset, 0)]
    return pieces


def split(fs: Fs, directory: str, segment: Segment, pieces: Sequence[Piece]) -> None:
    """Replace a segment by its pieces. After a crash in between, recovery finishes or undoes all of it."""
    _logger.warning(
        "Splitting %s: its offsets reach beyond %d, so that it becomes %d segments",
        segment.path,
        segment.base_offset + MAX_RELATIVE_OFFSET,
        len(pieces),
    )
    ends = [piece.position for piece in pieces[1:]] + [segment.size]
    for piece, end in zip(pieces, ends, strict=True):
        _copy(fs, f"{_path(directory, piece)}{CLEANED_SUFFIX}", segment, piece.position, end)
    fs.fsync_dir(directory)
    # From the last to the first: while a `.cleaned` file is left, recovery undoes the swaps behind it.
    for piece in reversed(pieces):
        fs.rename(_path(directory, piece) + CLEANED_SUFFIX, _path(directory, piece) + SWAP_SUFFIX)
    fs.fsync_dir(directory)
    segment.close_files()
    for path in segment.paths():
        fs.remove(path)
    for piece in pieces:
        fs.rename(_path(directory, piece) + SWAP_SUFFIX, _path(directory, piece))
    fs.fsync_dir(directory)


def _path(directory: str, piece: Piece) -> str:
    return f"{directory}/{stem(piece.base_offset)}{LOG_SUFFIX}"


def _copy(fs: Fs, path: str, segment: Segment, start: int, end: int) -> None:
    file = fs.open(path, create=True, truncate=True)
    try:
        while start < end:
            chunk = segment.log.pread(min(_COPY_BYTES, end - start), start)
            file.append([chunk])
            start += len(chunk)
        file.fsync()
    finally:
        file.close()
