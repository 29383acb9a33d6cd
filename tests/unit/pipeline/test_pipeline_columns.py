"""Columns into record batches: the rows can be read back, whatever they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

from ottla.client.partitioners import murmur2  # noqa: E402
from ottla.pipeline.batch_encoding import encode_batch  # noqa: E402
from ottla.pipeline.columns import encode_sections, varints  # noqa: E402
from ottla.pipeline.partitions import choose_partitions, murmur2_column  # noqa: E402
from ottla.records.batch import check_crc, iter_batches, iter_records  # noqa: E402
from ottla.wire.primitives import uvarint  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

maybe_bytes = st.none() | st.binary(max_size=300)
header = st.tuples(st.text(max_size=20), maybe_bytes)
row = st.tuples(maybe_bytes, maybe_bytes, st.integers(0, 2**48), st.none() | st.lists(header, max_size=3))


def read_back(rows: list, max_bytes: int, compression: int = 0) -> list:
    keys = pa.array([one[0] for one in rows], pa.binary())
    values = pa.array([one[1] for one in rows], pa.binary())
    headers = pa.array([one[3] for one in rows], HEADERS)
    times = np.array([one[2] for one in rows], np.int64)
    found = []
    for section in encode_sections(keys, values, times, headers, max_bytes):
        front, body = encode_batch(
            section, producer_id=7, epoch=3, sequence=len(found), compression=compression, transactional=True
        )
        batch = front + bytes(body)
        ((at, read),) = iter_batches(batch)
        assert check_crc(batch, at, read)
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 3, len(found))
        assert read.is_transactional
        assert read.max_timestamp == max(one[2] for one in rows[len(found) : len(found) + section.count])
        found += list(iter_records(batch))
    return found


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=40), st.sampled_from([1, 200, 2_000, 1 << 20]))
def test_rows_come_back_as_they_were(rows: list, max_bytes: int) -> None:
    found = read_back(rows, max_bytes)
    assert [(one.key, one.value, one.timestamp) for one in found] == [one[:3] for one in rows]
    output = [list(one.headers) for one in found]
    assert output == [list(one[3] or []) for one in rows]


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_batches_come_back(compression: int) -> None:
    rows = [(b"key", b"value-%d" % number, 1_000 + number, None) for number in range(5_000)]
    found = read_back(rows, 50_000, compression)
    assert [one.value for one in found] == [one[1] for one in rows]


def test_batches_are_full_but_not_over_full() -> None:
    values = pa.array([bytes(100)] * 1_000, pa.binary())
    times = np.zeros(1_000, np.int64)
    sections = list(encode_sections(None, values, times, None, 10_000))
    assert all(len(one.body) <= 10_000 for one in sections)
    assert len(sections) <= 15
    huge = pa.array([bytes(50_000), b"small"], pa.binary())
    assert [one.count for one in encode_sections(None, huge, times[:2], None, 10_000)] == [1, 1]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_varints_are_those_of_the_wire(numbers: list[int]) -> None:
    matrix, counts = varints(np.array(numbers, np.int64))
    expected = b"".join(uvarint((number << 1 ^ number >> 63) & (2**64 - 1)) for number in numbers)
    assert matrix[counts].tobytes() == expected


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=500, max_size=530), max_size=30))
def test_the_hash_of_a_column_is_that_of_its_keys(keys: list[bytes | None]) -> None:
    column = pa.array([b"in front", *keys], pa.binary()).slice(1)
    hashes = murmur2_column(column)
    assert [int(one) for one in hashes] == [murmur2(key or b"") for key in keys]


def test_records_without_a_key_take_turns() -> None:
    chosen = choose_partitions(None, 10_000, 4, turn=1)
    assert set(chosen.tolist()) == {0, 1, 2, 3}
    assert chosen[0] == 1
    mixed = pa.array([b"key", None] * 100, pa.binary())
    chosen = choose_partitions(mixed, 200, 4, turn=0)
    assert set(chosen[::2].tolist()) == {(murmur2(b"key") & 0x7FFFFFFF) % 4}
