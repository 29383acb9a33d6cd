"""The sparse indexes: entries as Kafka writes them, lookups across pages and memory, padded and ragged files."""

from __future__ import annotations

import struct

import pytest

from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.txn_index import CorruptIndexError, TransactionIndex
from ottla.log.types import AbortedTxn
from ottla.testing.memfs import MemFs

BASE = 1_000_000


def offset_index(fs: MemFs, max_bytes: int = 10 << 20) -> OffsetIndex:
    return OffsetIndex(fs, "/00000000000001000000.index", BASE, max_bytes)


def test_offset_entries_are_eight_bytes_relative_to_the_segment() -> None:
    fs = MemFs()
    index = offset_index(fs)
    index.append(BASE + 5, 4097)
    index.append(BASE + 9, 8200)
    index.write_pending()
    assert fs.read_bytes(index.path) == bytes.fromhex("00000005 00001001 00000009 00002008")


@pytest.mark.parametrize("count", [0, 1, 3, 511, 512, 513, 1024, 2000])
@pytest.mark.parametrize("written", [True, False])
def test_lookup_finds_the_entry_at_or_before(count: int, written: bool) -> None:
    fs = MemFs()
    index = offset_index(fs)
    for n in range(1, count + 1):
        index.append(BASE + 10 * n, 100 * n)
    if written:
        index.write_pending()
        index.close()
        index = offset_index(fs)
    assert len(index) == count
    assert index.lookup(BASE) == 0
    assert index.lookup(BASE + 9) == 0
    for n in {1, 2, count // 2, count - 1, count}:
        if 1 <= n <= count:
            assert index.lookup(BASE + 10 * n) == 100 * n
            assert index.lookup(BASE + 10 * n + 9) == 100 * n
    if count:
        assert index.at(count - 1) == (BASE + 10 * count, 100 * count)
        assert index.floor(BASE + 10 * count) == count - 1


def test_truncation_drops_the_entries_at_and_after_an_offset() -> None:
    fs = MemFs()
    index = offset_index(fs)
    for n in range(1, 1500):
        index.append(BASE + 10 * n, 100 * n)
    index.truncate_to(BASE + 7000)
    assert len(index) == 699
    index.append(BASE + 6995, 1)
    index.truncate_to(BASE + 6991)
    assert (len(index), index.at(698)) == (699, (BASE + 6990, 69900))
    index.write_pending()
    assert fs.stat(index.path).size == 699 * 8
    index.truncate_to(BASE)
    assert len(index) == 0


def test_the_zeros_that_kafka_preallocates_are_cut_off() -> None:
    fs = MemFs()
    entries = b"".join(struct.pack(">ii", 10 * n, 100 * n) for n in range(1, 301))
    index = offset_index(fs)
    fs.write_bytes(index.path, entries + bytes(10 << 20))
    assert len(index) == 300
    assert index.lookup(BASE + 3000) == 30000
    assert fs.stat(index.path).size == 2400
    index.append(BASE + 3010, 30100)
    index.write_pending()
    assert fs.read_bytes(index.path) == entries + struct.pack(">ii", 3010, 30100)


def test_a_ragged_end_is_cut_off() -> None:
    fs = MemFs()
    index = offset_index(fs)
    fs.write_bytes(index.path, struct.pack(">iii", 1, 2, 3))
    assert len(index) == 1
    assert fs.stat(index.path).size == 8


def test_an_index_is_full_at_its_configured_size() -> None:
    index = offset_index(MemFs(), max_bytes=25)
    for n in range(1, 4):
        assert not index.is_full
        index.append(BASE + n, n)
    assert index.is_full
    times = TimeIndex(MemFs(), "/x.timeindex", BASE, 37)
    for n in range(1, 3):
        assert not times.is_full
        times.maybe_append(n, BASE + n)
    assert times.is_full  # one place is left for the last entry, written when the segment is closed


def test_time_entries_are_twelve_bytes_and_only_rise() -> None:
    fs = MemFs()
    index = TimeIndex(fs, "/x.timeindex", BASE, 10 << 20)
    assert index.last_entry() == (-1, BASE)
    index.maybe_append(1000, BASE + 3)
    index.maybe_append(1000, BASE + 4)
    index.maybe_append(900, BASE + 5)
    index.maybe_append(2000, BASE + 6)
    index.write_pending()
    assert fs.read_bytes("/x.timeindex") == bytes.fromhex(
        "00000000000003e8 00000003 00000000000007d0 00000006"
    )
    assert index.lookup(999) == BASE
    assert index.lookup(1999) == BASE + 3
    assert index.lookup(5000) == BASE + 6
    index.truncate_to(BASE + 6)
    assert index.last_entry() == (1000, BASE + 3)


def test_replacing_entries_leaves_an_equal_file_alone() -> None:
    fs = MemFs()
    raw = struct.pack(">iiii", 1, 100, 2, 200)
    index = offset_index(fs)
    fs.write_bytes(index.path, raw)

    def no_write(operation: str, path: str) -> None:
        assert operation != "write"

    fs.fault = no_write
    index.replace(raw)
    assert len(index) == 2
    fs.fault = None
    index.replace(raw[:8])
    assert fs.read_bytes(index.path) == raw[:8]
    assert index.lookup(BASE + 2) == 100


def test_aborted_transactions_take_34_bytes_each() -> None:
    fs = MemFs()
    index = TransactionIndex(fs, "/x.txnindex", 0)
    index.append(AbortedTxn(producer_id=5, first_offset=10, last_offset=20, last_stable_offset=15))
    index.append(AbortedTxn(6, 12, 30, 31))
    assert fs.read_bytes("/x.txnindex") == struct.pack(">hqqqq", 0, 5, 10, 20, 15) + struct.pack(
        ">hqqqq", 0, 6, 12, 30, 31
    )
    again = TransactionIndex(fs, "/x.txnindex", 0)
    assert again.entries() == index.entries()
    assert again.collect(0, 12) == ([AbortedTxn(5, 10, 20, 15)], True)
    assert again.collect(21, 40) == ([AbortedTxn(6, 12, 30, 31)], False)
    again.truncate_to(30)
    assert [txn.producer_id for txn in again.entries()] == [5]
    again.truncate_to(20)
    assert not fs.exists("/x.txnindex")


def test_a_transaction_index_of_another_segment_is_corrupt() -> None:
    fs = MemFs()
    fs.write_bytes("/x.txnindex", struct.pack(">hqqqq", 0, 5, 10, 20, 15))
    with pytest.raises(CorruptIndexError):
        TransactionIndex(fs, "/x.txnindex", 100).check()
    fs.write_bytes("/x.txnindex", struct.pack(">hqqqq", 9, 5, 10, 20, 15))
    with pytest.raises(CorruptIndexError):
        TransactionIndex(fs, "/x.txnindex", 0).check()
