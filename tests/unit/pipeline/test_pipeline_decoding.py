"""Record batches into Arrow columns: the same records as the plain reader finds, and an error for broken bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

from ottla.errors import ApiException  # noqa: E402
from ottla.pipeline.decoding import ALL_COLUMNS, SCHEMA, decode  # noqa: E402
from ottla.pipeline.fetching import FetchedBatches  # noqa: E402
from ottla.records.batch import (  # noqa: E402
    HEADER_SIZE,
    CorruptBatchError,
    assemble,
    build_batch,
    iter_batches,
    iter_records,
    read_header,
)
from ottla.records.codecs import Compression  # noqa: E402
from ottla.records.record import InvalidRecordError, Record  # noqa: E402

maybe_bytes = st.none() | st.binary(max_size=300)
header = st.tuples(st.text(max_size=20), maybe_bytes)
row = st.tuples(
    maybe_bytes,
    maybe_bytes,
    st.integers(-1, 2**48),
    st.lists(header, max_size=3) | st.just([("h", b"v")] * 40),
    st.integers(1, 70),
)


def fetched(data: bytes, start: int = 0, end: int = 2**62) -> FetchedBatches:
    return FetchedBatches("orders", 3, data, list(iter_batches(data)), start, end, end)


def rows_of(found: FetchedBatches) -> list[tuple]:
    rows = []
    for batch in decode(found):
        assert batch.schema.equals(SCHEMA)
        batch.validate(full=True)
        columns = [batch.column(name) for name in ALL_COLUMNS]
        columns[5] = columns[5].cast(pa.int64())
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return rows


def expected(found: FetchedBatches) -> list[tuple]:
    rows = []
    for at, head in found.batches:
        for record in iter_records(found.data, at, head):
            if found.start <= record.offset < found.end:
                headers = [{"key": key, "value": value} for key, value in record.headers] or None
                rows.append(
                    (
                        record.key,
                        record.value,
                        "orders",
                        3,
                        record.offset,
                        record.timestamp * 1000,
                        head.timestamp_type,
                        headers,
                    )
                )
    return rows


def log_of(rows: list[tuple], per_batch: int, codec: int, append_time: bool = False) -> bytes:
    """Batches of records with gaps between their offsets, as compaction leaves them."""
    records, offset = [], 0
    for key, value, timestamp, headers, step in rows:
        records.append(Record(offset, timestamp, key, value, headers))
        offset += step
    return b"".join(
        build_batch(
            records[at : at + per_batch],
            compression=Compression(codec),
            timestamp_type=int(append_time),
            append_time=77 if append_time else -1,
        )
        for at in range(0, len(records), per_batch)
    )


@given(
    st.lists(row, min_size=1, max_size=60),
    st.integers(1, 60),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 2000),
    st.integers(0, 4000),
)
def test_columns_hold_what_the_plain_reader_finds(rows, per_batch, codec, append_time, start, length) -> None:
    found = fetched(log_of(rows, per_batch, codec, append_time), start, start + length)
    assert rows_of(found) == expected(found)


@pytest.mark.parametrize("sizes", [(100, 100), (0, 0), (60, 61), (0, 300), (8_000, 8_300), (70_000, 70_001)])
def test_records_of_one_size_and_of_many(sizes) -> None:
    rng = random.Random(7)
    rows = [
        (b"key-%d" % (number % 7), rng.randbytes(rng.randint(*sizes)), 1_000 + number, [], 1)
        for number in range(600)
    ]
    found = fetched(log_of(rows, 250, 0))
    assert rows_of(found) == expected(found)


def test_only_the_wanted_columns_in_their_order() -> None:
    found = fetched(log_of([(b"k", b"v", 5, [], 1)] * 3, 2, 4))
    (batch,) = decode(found, ("offset", "value"))
    assert batch.to_pydict() == {"offset": [0, 1, 2], "value": [b"v"] * 3}


def test_large_batches_come_in_several_pieces() -> None:
    rows = [(None, bytes(100_000), 0, [], 1) for _ in range(200)]
    found = fetched(log_of(rows, 10, 3))
    pieces = list(decode(found, ("offset",)))
    assert len(pieces) == 3
    assert [one for piece in pieces for one in piece.column(0).to_pylist()] == list(range(200))


def test_a_header_key_that_is_no_text_is_replaced() -> None:
    found = fetched(log_of([(None, b"v", 0, [("\udcff", b"x")], 1)], 1, 0))
    (batch,) = decode(found, ("headers",))
    assert batch.column(0).to_pylist() == [[{"key": "�", "value": b"x"}]]


def test_a_wrong_checksum_is_refused() -> None:
    data = bytearray(log_of([(b"k", b"value", 0, [], 1)], 1, 0))
    data[-3] ^= 1
    with pytest.raises(CorruptBatchError, match="orders-3, batch at offset 0: the checksum is wrong"):
        list(decode(fetched(bytes(data))))


def rewritten(data: bytes, body: bytes, count: int) -> bytes:
    """The batch with other records and their right checksum."""
    head = read_header(data)
    return assemble(
        body,
        base_offset=head.base_offset,
        partition_leader_epoch=-1,
        attributes=head.attributes,
        last_offset_delta=head.last_offset_delta,
        base_timestamp=head.base_timestamp,
        max_timestamp=head.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )


@given(st.lists(row, min_size=1, max_size=8), st.data())
def test_broken_records_are_read_as_by_the_plain_reader_or_refused(rows, data) -> None:
    whole = log_of(rows, 8, 0)
    body = bytearray(whole[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))]
    count = data.draw(st.just(len(rows)) | st.integers(-2, 2**31 - 1))
    found = fetched(rewritten(whole, bytes(body), count))
    try:
        wanted = expected(found)
    except ApiException:
        wanted = None
    try:
        rows_found = rows_of(found)
    except InvalidRecordError as error:
        assert "orders-3, offsets 0 to" in str(error)
        return
    assert wanted is not None
    if all(abs(one[5]) < 2**60 for one in wanted):
        assert [one[:5] for one in rows_found] == [one[:5] for one in wanted]
