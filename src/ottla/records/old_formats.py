"""Messages of formats 0 and 1, which clients before 0.11 wrote and older brokers keep: read as batches of format 2.

Ottla's broker refuses them. Those who read from other clusters take them: a mirror copies them as batches.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam

from ottla.limits import MAX_UNPACKED_BATCH_BYTES
from ottla.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    Buffer,
    CorruptBatchError,
    build_batch,
    check_header,
    read_header,
)
from ottla.records.codecs import Compression, decompress
from ottla.records.record import Record

_HEADER: Final = struct.Struct(">qiIbb")
"""Offset, size, checksum, magic and attributes."""
_TIME: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_BLOCK: Final = struct.Struct("<I")
_MOST_TOGETHER: Final = 1000
"""How many messages that were not compressed become one batch."""
_LARGEST_TOGETHER: Final = 1 << 18


def is_old(data: Buffer) -> bool:
    """Whether bytes of a log begin with a message of an old format."""
    return len(data) > MAGIC_POSITION and data[MAGIC_POSITION] < MAGIC


def modern(data: Buffer) -> bytes:
    """The same records in batches of format 2, which stay as they are. An incomplete end is left out."""
    view, out = memoryview(data), bytearray()
    together: list[Record] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if together:
            out.extend(build_batch(together))
        together.clear()
        size = 0

    for pos, end in _messages(view):
        if view[pos + MAGIC_POSITION] == MAGIC:
            flush()
            out += view[pos:end]
            continue
        codec = view[pos + _HEADER.size - 1] & CODEC_MASK
        if codec:
            flush()
            out += build_batch(list(_inner(view, pos, end)), compression=Compression(codec))
            continue
        together.append(_message(view, pos, end)[0])
        size += end - pos
        if len(together) == _MOST_TOGETHER or size >= _LARGEST_TOGETHER:
            flush()
    flush()
    return bytes(out)


def _messages(view: memoryview) -> Iterator[tuple[int, int]]:
    """Where each complete message or batch begins and ends."""
    pos = 0
    while pos + _HEADER.size <= len(view):
        offset, length, crc, magic, _ = _HEADER.unpack_from(view, pos)
        end = pos + LOG_OVERHEAD + length
        if magic not in (0, 1):
            if pos + HEADER_SIZE > len(view):
                return
            check_header(read_header(view, pos))
        elif length < _HEADER.size - LOG_OVERHEAD:
            raise CorruptBatchError(
                f"message at offset {offset} has length {length}, less than its own header"
            )
        if end > len(view):
            return
        if magic != MAGIC and zlib.crc32(view[pos + MAGIC_POSITION : end]) != crc:
            raise CorruptBatchError(f"message at offset {offset} has a wrong checksum")
        yield pos, end
        pos = end


def _message(view: memoryview, pos: int, end: int) -> tuple[Record, bool]:
    """One message, and whether its time is the broker's."""
    offset, _, _, magic, attributes = _HEADER.unpack_from(view, pos)
    try:
        at, time_ms = pos + _HEADER.size, NO_TIMESTAMP
        if magic:
            (time_ms,) = _TIME.unpack_from(view, at)
            at += _TIME.size
        key, at = _bytes(view, at, end)
        value, at = _bytes(view, at, end)
    except struct.error:
        at = -1
    if at != end:
        raise CorruptBatchError(f"message at offset {offset} does not end where its length says")
    return Record(offset, time_ms, key, value), bool(magic and attributes & LOG_APPEND_TIME_FLAG)


def _bytes(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if at + length > end:
        raise struct.error
    return bytes(view[at : at + length]), at + length


def _inner(view: memoryview, pos: int, end: int) -> Iterator[Record]:
    """The messages in a compressed one. In format 1 their offsets count from the first one, and the outer one has the
    offset of the last."""
    outer, append_time = _message(view, pos, end)
    magic = view[pos + MAGIC_POSITION]
    codec = view[pos + _HEADER.size - 1] & CODEC_MASK
    packed = outer.value or b""
    if codec == Compression.LZ4 and not magic:
        data = memoryview(_old_lz4(packed))
    else:
        data = memoryview(decompress(codec, packed, MAX_UNPACKED_BATCH_BYTES))
    found = []
    for at, stop in _messages(data):
        if data[at + MAGIC_POSITION] > 1 or data[at + _HEADER.size - 1] & CODEC_MASK:
            raise CorruptBatchError(f"message at offset {outer.offset} holds one that is compressed again")
        found.append(_message(data, at, stop)[0])
    if not found:
        raise CorruptBatchError(f"message at offset {outer.offset} is compressed and holds none")
    shift = outer.offset - found[-1].offset if magic else 0
    for one in found:
        time_ms = outer.timestamp if append_time else one.timestamp
        yield Record(one.offset + shift, time_ms, one.key, one.value)


def _old_lz4(packed: bytes) -> bytes:
    """Unpacks a frame of format 0, whose header has a wrong checksum (KAFKA-3160): its blocks one by one."""
    try:
        flags, kind = packed[4], packed[5]
        largest = 1 << (8 + 2 * (kind >> 4 & 7))
        # Behind the magic number: flags, kind of blocks, perhaps the content's size, checksum of the header.
        pos = 6 + (8 if flags & 0x08 else 0) + 1
        out, unpacked = bytearray(), bytearray(largest)
        while True:
            (word,) = _BLOCK.unpack_from(packed, pos)
            pos += _BLOCK.size
            if not word:
                return bytes(out)
            length = word & 0x7FFFFFFF
            block = packed[pos : pos + length]
            pos += length + (4 if flags & 0x10 else 0)
            plain = word >> 31
            if plain:
                out += block
            else:
                size = cramjam.lz4.decompress_block_into(block, output=unpacked, output_len=largest)
                out += unpacked[:size]
            if len(out) > MAX_UNPACKED_BATCH_BYTES:
                raise CorruptBatchError("the compressed messages of format 0 unpack to more than is allowed")
    except (IndexError, struct.error, cramjam.DecompressionError) as error:
        raise CorruptBatchError(f"the compressed messages of format 0 cannot be unpacked: {error}") from error
