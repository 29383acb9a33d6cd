"""Batches of a source as batches for a target: rewritten headers, and what has to be opened and built again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.ids import ProducerId
from ottla.mirror.copying import Piece, pieces_of, sealed
from ottla.mirror.ownership import Identity
from ottla.records.batch import (
    LOG_APPEND_TIME,
    CorruptBatchError,
    build_batch,
    check_crc,
    iter_records,
    read_header,
)
from ottla.records.codecs import Compression
from ottla.records.record import Record

IDENTITY = Identity(ProducerId(4711), 3)
LARGE = 1 << 20


def copies(data: bytes, start: int = 0, limit: int = LARGE) -> list[Piece]:
    return list(pieces_of(data, 0, read_header(data), start, limit))


def written(piece: Piece, sequence: int = 9) -> bytes:
    return sealed(piece, IDENTITY, sequence) + bytes(piece.body)


def plain(record: Record) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, tuple(record.headers)


RECORDS = st.lists(
    st.builds(
        lambda gap, time, key, value, headers: (gap, time, key, value, headers),
        st.sampled_from([1, 1, 1, 2, 5]),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=30),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(
    RECORDS,
    st.sampled_from(list(Compression)),
    st.booleans(),
    st.sampled_from([LARGE, 150]),
    st.integers(0, 30),
)
def test_all_records_from_the_start_on_arrive_in_order(drawn, codec, append_time, limit, start):
    offset, records = 99, []
    for gap, time, key, value, headers in drawn:
        offset += gap
        records.append(Record(offset, time, key, value, headers))
    data = build_batch(
        records,
        compression=codec,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        is_transactional=True,
        timestamp_type=LOG_APPEND_TIME if append_time else 0,
        append_time=77,
    )
    first = 100 + start
    found = copies(data, first, limit)
    arrived = [record for piece in found for record in iter_records(written(piece))]
    expected = [plain(one) for one in iter_records(data) if one.offset >= first]
    assert [plain(one) for one in arrived] == expected
    offsets = [at + number for piece in found for at, count in piece.spans for number in range(count)]
    assert offsets == [one.offset for one in records if one.offset >= first]
    for piece in found:
        data = written(piece)
        header = read_header(data)
        assert check_crc(data, 0, header)
        assert header.count == header.last_offset_delta + 1
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 9)
        assert header.compression == codec
        assert header.attributes == codec, "no bit of the source's log is left"


@pytest.mark.parametrize("codec", list(Compression))
def test_a_whole_batch_is_not_opened(codec):
    data = build_batch(
        [Record(7 + number, 1000, b"k", b"v" * 50) for number in range(10)],
        compression=codec,
        is_transactional=True,
    )
    (piece,) = copies(data)
    assert not piece.rebuilt
    assert bytes(piece.body) == data[61:], "the compressed records are the same bytes"
    assert piece.spans == ((7, 10),)
    assert piece.next_upstream == 17


def test_a_batch_that_is_too_large_is_split_but_a_record_is_not():
    data = build_batch([Record(number, 1000, None, bytes([number]) * 400) for number in range(8)])
    found = copies(data, limit=1000)
    assert [piece.count for piece in found] == [2, 2, 2, 2]
    assert [piece.next_upstream for piece in found] == [2, 4, 6, 8]
    assert all(piece.size <= 1000 for piece in found)
    assert [piece.count for piece in copies(data, limit=100)] == [1] * 8


def test_a_damaged_batch_gets_no_checksum_that_is_right():
    data = bytearray(build_batch([Record(7, 1000, b"k", b"v" * 50)]))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="batch at offset 7 has a wrong checksum"):
        copies(bytes(data))
