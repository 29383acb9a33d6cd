"""Kafka's four compression codecs in the framings of its Java client, each with a bounded output.

Decompression writes into a buffer that grows up to the bound, so that a few kilobytes that expand to gigabytes cost no
more than the bound. The caller runs large data in a thread.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from time import perf_counter
from typing import Final, Protocol

import cramjam

from ottla.errors import ApiException, ErrorCode

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Codec ids as they stand in the lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


COMPRESSION_NAMES: Final = {
    "none": Compression.NONE,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""The values of `compression.type`, except for `producer`, which is no codec."""

DEFAULT_LEVELS: Final = {Compression.GZIP: 6, Compression.LZ4: 9, Compression.ZSTD: 3}
"""Kafka's levels if none is configured (gzip's -1 means 6)."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 << 10
_XERIAL_NEXT_STREAM: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
_INT: Final = struct.Struct(">i")

_FIRST_GUESS: Final = 64 << 10
_GUESS_RATIO: Final = 6
_OUTPUT_FULL: Final = "failed to write whole buffer"


class _Codec(Protocol):
    """A module of cramjam."""

    def decompress_into(self, data: Buffer, output: bytearray) -> int: ...


SECONDS: dict[tuple[int, str], float] = {}
"""Time spent in codecs by this process, by codec and direction. Threads add to it without a lock: it is a measure."""


class UnpackError(ApiException):
    """Compressed bytes that cannot be unpacked, or that unpack to more than allowed."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress in the framing that Kafka's clients expect. A level of None is Kafka's default."""
    began = perf_counter()
    try:
        return _compress(codec, data, level)
    finally:
        SECONDS[codec, "compress"] = SECONDS.get((codec, "compress"), 0.0) + perf_counter() - began


def _compress(codec: int, data: Buffer, level: int | None) -> bytes:
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=6 if level is None or level < 0 else level))
        case Compression.SNAPPY:
            return _snappy_compress(data)
        case Compression.LZ4:
            # Java reads only independent blocks, and ignores the content checksum.
            stream = cramjam.lz4.Compressor(
                level=DEFAULT_LEVELS[Compression.LZ4] if level is None else level,
                content_checksum=False,
                block_linked=False,
            )
            stream.compress(bytes(data))
            return bytes(stream.finish())
        case Compression.ZSTD:
            chosen = DEFAULT_LEVELS[Compression.ZSTD] if level is None else level
            return bytes(cramjam.zstd.compress(data, level=chosen))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, max_output: int) -> bytes:
    """Unpack to at most `max_output` bytes; more raises MESSAGE_TOO_LARGE, invalid data CORRUPT_MESSAGE."""
    began = perf_counter()
    try:
        return _decompress(codec, data, max_output)
    finally:
        SECONDS[codec, "decompress"] = SECONDS.get((codec, "decompress"), 0.0) + perf_counter() - began


def _decompress(codec: int, data: Buffer, max_output: int) -> bytes:
    match codec:
        case Compression.NONE:
            if len(data) > max_output:
                raise _too_large(max_output)
            return bytes(data)
        case Compression.GZIP:
            return _unpack_into(cramjam.gzip, data, _gzip_guess(data), max_output)
        case Compression.SNAPPY:
            return _snappy_decompress(data, max_output)
        case Compression.LZ4:
            return _unpack_into(cramjam.lz4, data, _guess(data), max_output)
        case Compression.ZSTD:
            return _unpack_into(cramjam.zstd, data, _guess(data), max_output)
    raise _unknown(codec)


def _guess(data: Buffer) -> int:
    return max(_FIRST_GUESS, len(data) * _GUESS_RATIO)


def _gzip_guess(data: Buffer) -> int:
    """A gzip member ends with its size, which is used as a guess if it is plausible."""
    if len(data) < 18:
        return _FIRST_GUESS
    claimed = int.from_bytes(data[-4:], "little")
    return max(_FIRST_GUESS, min(claimed, len(data) * 1040))


def _unpack_into(codec: _Codec, data: Buffer, guess: int, max_output: int) -> bytes:
    """Try with a buffer of the guessed size, then with larger ones up to the bound."""
    size = min(guess, max_output)
    while True:
        out = bytearray(size)
        try:
            written: int = codec.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _corrupt(error) from None
            if size >= max_output:
                raise _too_large(max_output) from None
            size = min(size * 4, max_output)
            # Free this buffer before the next one is allocated.
            del out
            continue
        del out[written:]
        return bytes(out)


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_INT.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_output: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_output, max_output)
    pos = len(_XERIAL_HEADER)
    parts: list[bytes] = []
    left = max_output
    while pos < len(view):
        if pos + 4 > len(view):
            raise _corrupt("a block of snappy data ends inside its length")
        (length,) = _INT.unpack_from(view, pos)
        if length == _XERIAL_NEXT_STREAM:
            # Streams can follow each other: the next one's header is in the place of a length.
            pos += len(_XERIAL_HEADER)
            continue
        pos += 4
        if length < 0 or pos + length > len(view):
            raise _corrupt(f"a block of snappy data claims {length} bytes, {len(view) - pos} are left")
        block = _snappy_block(view[pos : pos + length], left, max_output)
        left -= len(block)
        parts.append(block)
        pos += length
    return b"".join(parts)


def _snappy_block(block: memoryview, left: int, max_output: int) -> bytes:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(max_output)
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise _corrupt(error) from None
    return bytes(out)


def _corrupt(reason: object) -> UnpackError:
    return UnpackError(ErrorCode.CORRUPT_MESSAGE, f"the compressed records cannot be unpacked: {reason}")


def _too_large(max_output: int) -> UnpackError:
    return UnpackError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the compressed records unpack to more than {max_output} bytes"
    )


def _unknown(codec: int) -> UnpackError:
    return UnpackError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression codec {codec}, expected 0 to 4")
