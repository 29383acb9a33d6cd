"""Batches are built, walked, checked and read back; broken ones are refused with a typed error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    CorruptBatchError,
    build_batch,
    build_empty_batch,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
    stamp,
)
from ottla.records.codecs import Compression
from ottla.records.record import InvalidRecordError, Record, read_varint, write_varint
from unit.records.stamping import stamp_max_timestamp

THREE = [
    Record(10, 1000, b"a", b"one"),
    Record(11, 990, None, b"two", [("h", b"x"), ("h", None), ("", b"")]),
    Record(14, 2000, b"", None),
]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_a_varint_reads_back(value):
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= 10
    assert read_varint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-65, "8101")])
def test_a_varint_is_zigzag(value, encoded):
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_reads_back_with_every_codec(codec):
    raw = build_batch(THREE, compression=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    header = read_header(raw)
    assert header.size_in_bytes == len(raw)
    assert (header.base_offset, header.last_offset, header.count) == (10, 14, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert header.last_sequence == 7
    assert header.compression is codec
    assert check_crc(raw, 0, header)
    records = list(iter_records(raw))
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records] == [
        (r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in THREE
    ]


def test_offset_and_epoch_are_stamped_outside_the_checksum():
    raw = bytearray(build_batch(THREE))
    stamp(raw, 0, 500, 9)
    header = read_header(raw)
    assert (header.base_offset, header.partition_leader_epoch) == (500, 9)
    assert check_crc(raw, 0, header)
    assert [r.offset for r in iter_records(raw)] == [500, 501, 504]


def test_log_append_time_replaces_the_timestamp_of_every_record():
    raw = bytearray(build_batch(THREE))
    stamp_max_timestamp(raw, 0, LOG_APPEND_TIME, 77_000)
    header = read_header(raw)
    assert header.timestamp_type == LOG_APPEND_TIME
    assert check_crc(raw, 0, header)
    assert {r.timestamp for r in iter_records(raw)} == {77_000}


def test_walking_stops_before_an_incomplete_batch():
    one, two = build_batch(THREE), build_batch([Record(20, 1, b"k", b"v")])
    joined = memoryview(one + two)
    assert [(pos, h.base_offset) for pos, h in iter_batches(joined)] == [(0, 10), (len(one), 20)]
    for cut in range(len(one), len(joined)):
        assert [h.base_offset for _, h in iter_batches(joined[:cut])] == [10]


def test_walking_refuses_what_cannot_be_a_header():
    bad_magic = bytearray(build_batch(THREE))
    bad_magic[16] = 1
    with pytest.raises(CorruptBatchError, match="magic 1"):
        list(iter_batches(bad_magic))
    short = bytearray(build_batch(THREE))
    short[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match="length 48"):
        list(iter_batches(short))
    with pytest.raises(CorruptBatchError):
        read_header(b"\0" * (HEADER_SIZE - 1))


def test_a_flipped_bit_is_found():
    raw = bytearray(build_batch(THREE))
    for position in (21, 30, 61, len(raw) - 1):
        raw[position] ^= 4
        assert not check_crc(raw, 0, read_header(raw))
        raw[position] ^= 4


def test_an_empty_batch_keeps_span_and_producer():
    full = build_batch(THREE, producer_id=5, producer_epoch=2, base_sequence=0, compression=Compression.GZIP)
    empty = build_empty_batch(read_header(full))
    header = read_header(empty)
    assert len(empty) == HEADER_SIZE
    assert check_crc(empty, 0, header)
    assert (header.base_offset, header.last_offset, header.count, header.producer_id) == (10, 14, 0, 5)
    assert list(iter_records(empty)) == []


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp():
    raw = build_batch(THREE, delete_horizon_ms=123_456)
    header = read_header(raw)
    assert header.delete_horizon_ms == 123_456
    assert [r.timestamp for r in iter_records(raw)] == [1000, 990, 2000]


def test_a_sequence_wraps_around():
    raw = build_batch(THREE, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(raw).last_sequence == 2


@given(st.data())
def test_mutated_records_give_records_or_a_typed_error(data):
    raw = bytearray(build_batch(THREE))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(HEADER_SIZE, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(iter_records(raw))
    except ApiException as error:
        assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.parametrize("count", [-1, 2, 4, 2**31 - 1])
def test_a_wrong_count_is_found(count):
    raw = bytearray(build_batch(THREE))
    raw[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecordError):
        list(iter_records(raw))
