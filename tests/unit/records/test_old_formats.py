"""Messages of formats 0 and 1 are read as batches of format 2, with their offsets and times."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import CorruptBatchError, build_batch, iter_batches, iter_records
from ottla.records.codecs import Compression, UnpackError, compress
from ottla.records.old_formats import is_old, modern
from ottla.records.record import Record

_APPEND_TIME = 8


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(one: Record, magic: int, attributes: int = 0) -> bytes:
    time_ms = struct.pack(">q", one.timestamp) if magic else b""
    body = struct.pack(">bb", magic, attributes) + time_ms + field(one.key) + field(one.value)
    return struct.pack(">qiI", one.offset, len(body) + 4, zlib.crc32(body)) + body


def old_lz4(data: bytes) -> bytes:
    """A frame with the checksum of its header that clients wrote into format 0."""
    frame = bytearray(compress(Compression.LZ4, data))
    size = 8 if frame[4] & 0x08 else 0
    frame[6 + size] ^= 0xFF
    return bytes(frame)


def wrapped(
    records: Sequence[Record], magic: int, codec: Compression, *, append_time: int | None = None
) -> bytes:
    first, last = records[0].offset, records[-1].offset
    inner = b"".join(
        message(Record(one.offset - (first if magic else 0), one.timestamp, one.key, one.value), magic)
        for one in records
    )
    packed = old_lz4(inner) if (magic, codec) == (0, Compression.LZ4) else compress(codec, inner)
    time_ms = max(one.timestamp for one in records) if append_time is None else append_time
    flags = codec | (0 if append_time is None else _APPEND_TIME)
    return message(Record(last, time_ms, None, packed), magic, flags)


def read(data: bytes) -> list[Record]:
    assert is_old(data)
    found = modern(data)
    return [one for at, header in iter_batches(found) for one in iter_records(found, at, header)]


def plain(records: Sequence[Record], magic: int) -> list[Record]:
    return [
        Record(one.offset, one.timestamp if magic else -1, one.key, one.value, one.headers) for one in records
    ]


contents = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
    ),
    min_size=1,
    max_size=30,
)


def numbered(drawn: list[tuple[int, int, bytes | None, bytes | None]], start: int) -> list[Record]:
    found, offset = [], start
    for step, time_ms, key, value in drawn:
        found.append(Record(offset, time_ms, key, value))
        offset += step
    return found


@given(contents, st.integers(0, 2**40), st.sampled_from([0, 1]))
def test_messages_that_follow_each_other(drawn, start, magic):
    records = numbered(drawn, start)
    data = b"".join(message(one, magic) for one in records)
    assert read(data) == plain(records, magic)
    assert read(data + data[:11]) == plain(records, magic), "an incomplete end is left out"


@given(
    contents,
    st.integers(0, 2**40),
    st.sampled_from([0, 1]),
    st.sampled_from([Compression.GZIP, Compression.SNAPPY, Compression.LZ4]),
)
def test_compressed_messages_with_the_offsets_that_brokers_gave_them(drawn, start, magic, codec):
    records = numbered(drawn, start)
    assert read(wrapped(records, magic, codec)) == plain(records, magic)


def test_times_of_the_broker_are_those_of_the_outer_message():
    records = [Record(7, 1, b"a", b"b"), Record(8, 2, None, None)]
    found = read(wrapped(records, 1, Compression.GZIP, append_time=99))
    assert [(one.offset, one.timestamp) for one in found] == [(7, 99), (8, 99)]


def test_new_batches_between_old_messages_stay_as_they_are():
    batch = build_batch([Record(2, 5, b"k", b"v", [("h", b"x")])], compression=Compression.ZSTD)
    old = [Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")]
    data = b"".join(message(one, 1) for one in old) + batch + message(Record(3, 7, b"k", b"w"), 1)
    found = modern(data)
    assert batch in found
    assert [one.offset for one in read(data)] == [0, 1, 2, 3]
    assert modern(batch) == batch and not is_old(batch)


@pytest.mark.parametrize("at", [12, 17, 25, -1])
def test_damaged_messages_are_refused(at):
    data = bytearray(message(Record(3, 5, b"key", b"value"), 1))
    data[at] ^= 0x55
    with pytest.raises(CorruptBatchError, match="offset 3"):
        modern(bytes(data))


def test_a_compressed_message_in_a_compressed_one_is_refused():
    inner = wrapped([Record(0, 1, b"a", b"b")], 1, Compression.GZIP)
    data = message(Record(0, 1, None, compress(Compression.GZIP, inner)), 1, Compression.GZIP)
    with pytest.raises(CorruptBatchError, match="compressed again"):
        modern(data)


@given(st.binary(max_size=300), st.sampled_from([0, 1]), st.sampled_from(list(Compression)))
def test_any_bytes_are_read_or_refused(noise, magic, codec):
    for data in (noise, message(Record(0, 1, None, noise), magic, codec)):
        try:
            modern(data)
        except (CorruptBatchError, UnpackError):
            continue


def test_cramjam_refuses_such_frames_itself():
    with pytest.raises(cramjam.DecompressionError):
        cramjam.lz4.decompress(old_lz4(b"x" * 100))
