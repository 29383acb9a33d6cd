"""Every codec reads back what it wrote, reads the framings other clients write, and stops at its bound."""

import gzip
import os
import tracemalloc

import cramjam
import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.records.codecs import Compression, compress, decompress

CODECS = [codec for codec in Compression if codec]
SAMPLES = [b"", b"x", b"ab" * 50_000, os.urandom(70_000)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "dull", "random"])
def test_data_reads_back(codec, data):
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data) + 1) == data
    assert decompress(codec, memoryview(packed), 1 << 20) == data


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_exactly_the_bound_passes_and_one_byte_more_does_not(codec):
    data = b"z" * 200_000
    packed = compress(codec, data)
    assert decompress(codec, packed, 200_000) == data
    with pytest.raises(ApiException) as caught:
        decompress(codec, packed, 199_999)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_allocates_no_more_than_the_bound(codec):
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(ApiException):
        decompress(codec, bomb, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_nonsense_and_torn_data_are_corrupt(codec):
    packed = compress(codec, b"hello world" * 100)
    for bad in (b"\x00\x01\x02nonsense" * 5, packed[:-3], packed[: len(packed) // 2]):
        with pytest.raises(ApiException) as caught:
            decompress(codec, bad, 1 << 20)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_snappy_reads_a_plain_block_and_streams_that_follow_each_other():
    data = b"plain snappy" * 1000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), 1 << 20) == data
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, packed + packed, 1 << 20) == data + data


def test_gzip_reads_several_members():
    assert decompress(Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 100) == b"onetwo"


def test_zstd_reads_a_frame_without_its_content_size():
    stream = cramjam.zstd.Compressor(level=3)
    stream.compress(b"streamed" * 10_000)
    assert decompress(Compression.ZSTD, bytes(stream.finish()), 1 << 20) == b"streamed" * 10_000


def test_lz4_blocks_are_independent_as_java_demands():
    flags = compress(Compression.LZ4, b"x" * 200_000)[4]
    assert flags & 0x20
    linked = bytes(cramjam.lz4.compress(b"linked" * 50_000))
    assert decompress(Compression.LZ4, linked, 1 << 20) == b"linked" * 50_000


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, (-1, 1, 9)), (Compression.LZ4, (1, 9, 17)), (Compression.ZSTD, (-131072, 1, 22))],
)
def test_every_level_kafka_allows_works(codec, levels):
    data = b"".join(b"key-%d value-%d;" % (i, i * i) for i in range(2000))
    for level in levels:
        assert decompress(codec, compress(codec, data, level), 1 << 20) == data
