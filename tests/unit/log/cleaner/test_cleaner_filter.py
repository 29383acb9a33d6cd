"""What a cleaning keeps of a batch: last values, tombstones until their horizon, and what producers still need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.cleaner.batch_filter import BatchFilter, LastRecord
from ottla.log.cleaner.offset_map import OffsetMap, key_of
from ottla.log.cleaner.transactions import CleanedTransactionMetadata
from ottla.log.types import AbortedTxn
from ottla.records.batch import (
    LOG_APPEND_TIME,
    CorruptBatchError,
    build_batch,
    build_empty_batch,
    check_crc,
    iter_records,
    read_header,
)
from ottla.records.codecs import Compression
from ottla.records.control import build_end_txn_marker
from ottla.records.record import Record

NOW = 1_000_000
RETENTION = 5_000


def offset_map(latest=1000, **offsets):
    found = OffsetMap(1 << 20)
    for key, offset in offsets.items():
        found.put(key.encode(), offset)
    found.read_up_to(latest)
    return found


def make_filter(keys=None, *, aborted=(), producers=None, now=NOW, upper_bound=10_000):
    txns = CleanedTransactionMetadata(aborted)
    return BatchFilter(
        keys or offset_map(),
        txns,
        producers or {},
        now_ms=now,
        delete_retention_ms=RETENTION,
        upper_bound=upper_bound,
    )


def apply(batch_filter, raw):
    kept = batch_filter.apply(read_header(raw), raw)
    if kept is None:
        return None
    header = read_header(kept)
    assert header.size_in_bytes == len(kept)
    assert check_crc(kept, 0, header)
    return bytes(kept)


def contents(raw):
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in iter_records(raw)]


ABC = [Record(5, 100, b"a", b"1"), Record(6, 300, b"b", b"2", [("h", b"x")]), Record(7, 200, b"c", b"3")]


@pytest.mark.parametrize("codec", list(Compression))
def test_records_with_a_later_value_go_and_the_batch_keeps_its_span(codec):
    raw = build_batch(ABC, compression=codec, producer_id=1, producer_epoch=2, base_sequence=3)
    kept = apply(make_filter(offset_map(a=5, b=90, c=7)), raw)
    assert contents(kept) == [(5, 100, b"a", b"1", ()), (7, 200, b"c", b"3", ())]
    header = read_header(kept)
    assert (header.base_offset, header.last_offset, header.count) == (5, 7, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.max_timestamp == 200
    assert header.compression is codec


def test_a_batch_that_loses_nothing_is_kept_byte_for_byte():
    raw = build_batch(ABC)
    batch_filter = make_filter(offset_map(a=5, b=6))
    assert batch_filter.apply(read_header(raw), raw) is raw


def test_a_batch_that_loses_everything_goes():
    assert apply(make_filter(offset_map(a=50, b=50, c=50)), build_batch(ABC)) is None


def test_what_the_map_has_not_read_stays():
    raw = build_batch(ABC)
    kept = apply(make_filter(offset_map(latest=5, a=90, b=90, c=90)), raw)
    assert [r.key for r in iter_records(kept)] == [b"b", b"c"]


def test_records_without_a_key_go_and_are_counted():
    batch_filter = make_filter(offset_map(a=5))
    kept = apply(batch_filter, build_batch([Record(5, 1, b"a", b"1"), Record(6, 1, None, b"x")]))
    assert [r.key for r in iter_records(kept)] == [b"a"]
    assert batch_filter.stats.keyless == 1


def test_long_keys_are_told_apart():
    one, two = b"k" * 400 + b"1", b"k" * 400 + b"2"
    keys = offset_map()
    keys.put(one, 5)
    keys.put(two, 60)
    kept = apply(make_filter(keys), build_batch([Record(5, 1, one, b"1"), Record(6, 1, two, b"2")]))
    assert [r.key for r in iter_records(kept)] == [one]
    assert len(key_of(one)) == 20


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_tombstone_gets_a_horizon_stays_until_then_and_goes_after(codec):
    raw = build_batch([Record(5, 100, b"a", None), Record(6, 50, b"b", b"2")], compression=codec)
    first = apply(make_filter(offset_map(a=5, b=6)), raw)
    assert read_header(first).delete_horizon_ms == NOW + RETENTION
    assert contents(first) == contents(raw)
    assert read_header(first).max_timestamp == 100

    before = apply(make_filter(offset_map(a=5, b=6), now=NOW + RETENTION - 1), first)
    assert before == first

    after = apply(make_filter(offset_map(a=5, b=6), now=NOW + RETENTION), first)
    assert contents(after) == [(6, 50, b"b", b"2", ())]
    assert read_header(after).delete_horizon_ms == NOW + RETENTION


def test_a_horizon_keeps_log_append_time():
    raw = build_batch([Record(5, 100, b"a", None)], timestamp_type=LOG_APPEND_TIME, append_time=777)
    kept = apply(make_filter(offset_map(a=5)), raw)
    assert [r.timestamp for r in iter_records(kept)] == [777]


def test_the_last_batch_of_an_active_producer_stays_without_its_records():
    raw = build_batch(ABC, producer_id=9, producer_epoch=1, base_sequence=0)
    keys = offset_map(a=50, b=50, c=50)
    kept = apply(make_filter(keys, producers={9: LastRecord(7, 1)}), raw)
    assert kept == build_empty_batch(read_header(raw))
    assert apply(make_filter(keys, producers={9: LastRecord(99, 1)}), raw) is None
    assert apply(make_filter(keys, producers={8: LastRecord(7, 1)}), raw) is None


def test_the_batch_at_the_end_of_the_cleaning_stays_without_its_records():
    raw = build_batch(ABC)
    kept = apply(make_filter(offset_map(a=50, b=50, c=50), upper_bound=8), raw)
    assert read_header(kept).count == 0
    assert read_header(kept).last_offset == 7


def txn(offset, key, producer=9):
    return build_batch(
        [Record(offset, 1, key, b"v")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset, commit, producer=9):
    return build_end_txn_marker(
        commit=commit,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1,
        base_offset=offset,
    )


def test_aborted_data_goes_and_its_marker_stays_for_this_cleaning_and_one_retention():
    kept_aborts = []
    aborted = AbortedTxn(9, 10, 12, 12)
    batch_filter = make_filter(offset_map(), aborted=[aborted])
    batch_filter.txns.set_on_kept_abort(kept_aborts.append)
    assert apply(batch_filter, txn(10, b"a")) is None
    assert apply(batch_filter, txn(11, b"z", producer=4)) is not None
    raw = marker(12, commit=False)
    assert apply(batch_filter, raw) == raw
    assert kept_aborts == [aborted]

    second = apply(make_filter(aborted=[aborted]), raw)
    assert read_header(second).delete_horizon_ms == NOW + RETENTION
    assert apply(make_filter(aborted=[aborted], now=NOW + RETENTION - 1), second) == second
    assert apply(make_filter(aborted=[aborted], now=NOW + RETENTION), second) is None


def test_a_commit_marker_stays_as_long_as_data_of_its_transaction_does():
    batch_filter = make_filter(offset_map(a=10))
    assert apply(batch_filter, txn(10, b"a")) is not None
    raw = marker(11, commit=True)
    assert apply(batch_filter, raw) == raw
    alone = apply(make_filter(), raw)
    assert read_header(alone).has_delete_horizon
    assert apply(make_filter(now=NOW + RETENTION), alone) is None


def test_the_marker_with_the_last_epoch_of_a_producer_without_data_stays():
    raw = apply(make_filter(), marker(11, commit=True))
    late = make_filter(now=NOW + RETENTION, producers={9: LastRecord(-1, 0)})
    kept = apply(late, raw)
    assert read_header(kept).count == 0
    assert read_header(kept).is_control


def test_a_control_batch_cleaned_to_nothing_goes_without_trouble():
    empty = build_empty_batch(read_header(marker(11, commit=True)))
    assert apply(make_filter(), empty) is None


def test_a_broken_batch_is_not_rewritten():
    raw = bytearray(build_batch(ABC))
    raw[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        make_filter(offset_map(a=50)).apply(read_header(raw), raw)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c" * 30]), st.one_of(st.none(), st.binary(max_size=20))),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(Compression),
    st.integers(-(10**9), 10**15),
)
def test_exactly_the_last_record_of_each_key_survives(pairs, codec, start_time):
    records = [Record(i, start_time + i * 37 % 100, key, value) for i, (key, value) in enumerate(pairs)]
    keys = OffsetMap(1 << 20)
    for record in records:
        keys.put(record.key, record.offset)
    keys.read_up_to(len(records) - 1)
    kept = apply(make_filter(keys), build_batch(records, compression=codec))
    last = {record.key: record for record in records}
    assert contents(kept) == [
        (r.offset, r.timestamp, r.key, r.value, ()) for r in sorted(last.values(), key=lambda r: r.offset)
    ]


def test_the_map_says_when_it_is_full():
    small = OffsetMap(192 * 10)
    for index in range(20):
        if small.full:
            break
        small.put(b"%d" % index, index)
    assert len(small) == 9
